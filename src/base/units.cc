#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace lazytrain {
namespace {
constexpr std::array<std::pair<std::string_view, double>, 14> kUnits = {{{"", 1},
                                                                         {"B", 1},
                                                                         {"kB", 1e3},
                                                                         {"KB", 1e3},
                                                                         {"MB", 1e6},
                                                                         {"GB", 1e9},
                                                                         {"TB", 1e12},
                                                                         {"KiB", 1024.0},
                                                                         {"MiB", 1048576.0},
                                                                         {"GiB", 1073741824.0},
                                                                         {"TiB", 1099511627776.0},
                                                                         {"M", 1e6},
                                                                         {"G", 1e9},
                                                                         {"T", 1e12}}};

std::string scaled(double value, const char* const* units, int count, const char* separator) {
  int unit = 0;
  while (unit + 1 < count && std::fabs(value) >= 999.5) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}{}", value, digits, units[unit][0] ? separator : "", units[unit]);
}
}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view key) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double factor = -1;
  for (const auto& [name, scale] : kUnits) {
    if (unit == name) factor = scale;
  }
  const double bytes = value * factor;
  if (error != std::errc() || factor < 0 || !std::isfinite(value)) {
    throw UsageError("{}: '{}' is not a size. Write a number and a unit, such as 20GB (20e9 bytes) or 20GiB.", key,
                     text);
  }
  if (value < 0 || bytes > 9e18) throw UsageError("{}: '{}' is outside what a size can be (0 to 9 EB).", key, text);
  return static_cast<int64_t>(std::llround(bytes));
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(static_cast<double>(bytes), kNames, 6, " ");
}

std::string format_count(double count) {
  static constexpr const char* kNames[] = {"", "k", "M", "B", "T"};
  return scaled(count, kNames, 5, " ");
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 99.5) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace lazytrain
