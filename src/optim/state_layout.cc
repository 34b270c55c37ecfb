#include "optim/state_layout.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <optional>

#include "base/arith.h"
#include "base/error.h"

namespace lazytrain::optim {
namespace {

constexpr int64_t kDefaultBlock = 256;
constexpr int64_t kHybridBlock = 4096;

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Cuts `suffix` off the end of `text` where it stands there.
bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// Without what follows a `+` or `-`.
std::optional<StateSetting> parse_mode(std::string_view name) {
  using Mode = StateSetting::Mode;
  if (name == "8bit") return StateSetting{.mode = Mode::k8Bit, .block = kDefaultBlock};
  constexpr std::string_view k8Bit = "8bit:";
  if (name.starts_with(k8Bit)) {
    const auto block = parse_number<int64_t>(name.substr(k8Bit.size()));
    if (!block || *block < kSmallestBlock || *block > kLargestBlock ||
        !std::has_single_bit(static_cast<uint64_t>(*block)))
      return std::nullopt;
    return StateSetting{.mode = Mode::k8Bit, .block = *block};
  }
  constexpr std::string_view kHybrid = "hybrid:";
  if (name.starts_with(kHybrid)) {
    const auto fraction = parse_number<double>(name.substr(kHybrid.size()));
    if (!fraction || !(*fraction >= 0.0 && *fraction <= 1.0)) return std::nullopt;
    return StateSetting{.mode = Mode::kHybrid, .block = kHybridBlock, .fraction = *fraction};
  }
  return std::nullopt;
}

bool may_be_8bit(const StateSetting& setting, const StateParameter& parameter) {
  if (parameter.elements < kSmallest8Bit) return false;
  switch (parameter.role) {
    case ParameterRole::kMatrix:
      return true;
    case ParameterRole::kVector:
      return false;
    case ParameterRole::kEmbedding:
      return setting.embedding;
    case ParameterRole::kHead:
      return setting.head;
  }
  return false;
}

MomentLayout moment_layout(MomentFormat format, int64_t elements, int64_t& offset_bytes) {
  MomentLayout layout{.format = format, .elements = elements, .arrays = {}};
  const auto add = [&](std::string_view name, DType dtype, int64_t count) {
    layout.arrays.push_back({name, dtype, count, offset_bytes});
    offset_bytes += align_up(count * size_of(dtype), kMomentAlignment);
  };
  switch (format.kind) {
    case StateKind::kFp32:
      add("m", DType::kF32, elements);
      add("v", DType::kF32, elements);
      break;
    case StateKind::k8Bit:
      add("m8", DType::kU8, elements);
      add("v8", DType::kU8, elements);
      add("scales", DType::kF32, 2 * div_ceil(elements, format.block));
      break;
  }
  return layout;
}

}  // namespace

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::kFp32:
      return "fp32";
    case StateKind::k8Bit:
      return "8bit";
  }
  return "?";
}

StateSetting state_setting_from_name(std::string_view name) {
  if (name == "fp32") return {};
  std::string_view rest = name;
  bool embedding = false, head = true;
  for (bool again = true; again;) {
    again = false;
    if (!embedding && take_suffix(rest, "+embedding")) again = embedding = true;
    if (head && take_suffix(rest, "-head")) {
      head = false;
      again = true;
    }
  }
  std::optional<StateSetting> setting = parse_mode(rest);
  if (!setting) {
    throw UsageError(
        "optimizer state '{}' is unknown; expected fp32, 8bit, 8bit:BLOCK with a power of two from {} to {}, or "
        "hybrid:FRACTION with a fraction of 0 to 1; behind either of the last +embedding or -head",
        name, kSmallestBlock, kLargestBlock);
  }
  setting->embedding = embedding;
  setting->head = head;
  return *setting;
}

std::vector<MomentFormat> moment_formats(const StateSetting& setting, std::span<const StateParameter> model) {
  std::vector<MomentFormat> formats(model.size());
  const MomentFormat small{StateKind::k8Bit, setting.block};
  if (setting.mode == StateSetting::Mode::kFp32) return formats;
  double wanted = 0.0;  // elements in 8-bit
  for (const StateParameter& parameter : model) wanted += static_cast<double>(parameter.elements);
  if (setting.mode == StateSetting::Mode::kHybrid) wanted *= setting.fraction;

  std::vector<size_t> order(model.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return model[a].elements > model[b].elements; });
  double taken = 0.0;
  for (const size_t i : order) {
    if (taken >= wanted) break;
    if (!may_be_8bit(setting, model[i])) continue;
    formats[i] = small;
    taken += static_cast<double>(model[i].elements);
  }
  return formats;
}

const MomentArray& MomentLayout::array(std::string_view name) const {
  for (const MomentArray& a : arrays) {
    if (a.name == name) return a;
  }
  throw RunError("optimizer state of kind {} has no array '{}'", name_of(format.kind), name);
}

int64_t MomentLayout::bytes() const {
  return std::accumulate(arrays.begin(), arrays.end(), int64_t{0},
                         [](int64_t sum, const MomentArray& a) { return sum + a.bytes(); });
}

std::optional<MomentFormat> format_of_scales(int64_t elements, int64_t scales) {
  for (int64_t block = kSmallestBlock; elements >= kSmallest8Bit && block <= kLargestBlock; block *= 2) {
    if (scales == 2 * div_ceil(elements, block)) return MomentFormat{StateKind::k8Bit, block};
  }
  return std::nullopt;
}

UnitMoments unit_moments(std::span<const StateParameter> unit, std::span<const MomentFormat> formats) {
  UnitMoments moments;
  for (size_t i = 0; i < unit.size(); ++i) {
    moments.parameters.push_back(moment_layout(formats[i], unit[i].elements, moments.bytes));
  }
  return moments;
}

int64_t moment_bytes(MomentFormat format, int64_t n) {
  int64_t offset = 0;
  return moment_layout(format, n, offset).bytes();
}

double bytes_a_parameter(MomentFormat format) {
  // Over many parameters, so that what a block shares is counted in part.
  constexpr int64_t kMany = int64_t{1} << 30;
  constexpr auto kWeights = static_cast<double>(size_of(DType::kBF16) + size_of(DType::kI16));
  return kWeights + static_cast<double>(moment_bytes(format, kMany)) / static_cast<double>(kMany);
}

int64_t planned_state_bytes(std::string_view state, int64_t parameters) {
  const StateSetting setting = state_setting_from_name(state);
  int64_t small = 0;
  if (setting.mode == StateSetting::Mode::k8Bit) small = parameters;
  if (setting.mode == StateSetting::Mode::kHybrid) {
    small = static_cast<int64_t>(setting.fraction * static_cast<double>(parameters));
  }
  const int64_t fp32 = moment_bytes({}, parameters - small);
  return small == 0 ? fp32 : fp32 + moment_bytes({StateKind::k8Bit, setting.block}, small);
}

}  // namespace lazytrain::optim
