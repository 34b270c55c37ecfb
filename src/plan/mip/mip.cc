#include "plan/mip/mip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"

namespace lazytrain::plan {

LinearSum& LinearSum::add(int column, double coefficient) {
  if (column >= 0 && coefficient != 0) terms.emplace_back(column, coefficient);
  return *this;
}

LinearSum& LinearSum::add(const LinearSum& other, double factor) {
  for (const auto& [column, coefficient] : other.terms) add(column, coefficient * factor);
  constant += other.constant * factor;
  return *this;
}

LinearSum& LinearSum::add(double value) {
  constant += value;
  return *this;
}

int Mip::add_column(std::string column_name, double lower, double upper, double cost) {
  columns.push_back({lower, upper, cost, false, std::move(column_name)});
  return static_cast<int>(columns.size()) - 1;
}

int Mip::add_binary(std::string column_name, double cost) {
  columns.push_back({0, 1, cost, true, std::move(column_name)});
  return static_cast<int>(columns.size()) - 1;
}

void Mip::add_row(std::string row_name, double lower, const LinearSum& sum, double upper) {
  MipRow row{lower - sum.constant, upper - sum.constant, sum.terms, std::move(row_name)};
  std::sort(row.entries.begin(), row.entries.end());
  size_t kept = 0;
  for (size_t i = 0; i < row.entries.size();) {
    std::pair<int, double> total{row.entries[i].first, 0};
    for (; i < row.entries.size() && row.entries[i].first == total.first; ++i) total.second += row.entries[i].second;
    if (std::abs(total.second) > 1e-12) row.entries[kept++] = total;
  }
  row.entries.resize(kept);
  if (kept == 0 && row.lower <= 1e-9 && row.upper >= -1e-9) return;
  rows.push_back(std::move(row));
}

double Mip::objective(const std::vector<double>& values) const {
  double sum = 0;
  for (size_t i = 0; i < columns.size(); ++i) sum += columns[i].cost * values[i];
  return sum;
}

double Mip::max_violation(const std::vector<double>& values) const {
  if (values.size() != columns.size()) return kInfinity;
  double worst = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    const double v = values[i];
    if (!std::isfinite(v)) return kInfinity;
    const double scale = std::max(1.0, std::abs(v));
    worst = std::max({worst, (columns[i].lower - v) / scale, (v - columns[i].upper) / scale});
    if (columns[i].integer) worst = std::max(worst, std::abs(v - std::round(v)));
  }
  for (const MipRow& row : rows) {
    double sum = 0, scale = 1;
    for (const auto& [column, coefficient] : row.entries) {
      const double term = coefficient * values[static_cast<size_t>(column)];
      sum += term;
      scale = std::max(scale, std::abs(term));
    }
    worst = std::max({worst, (row.lower - sum) / scale, (sum - row.upper) / scale});
  }
  return worst;
}

size_t Mip::entries() const {
  size_t sum = 0;
  for (const MipRow& row : rows) sum += row.entries.size();
  return sum;
}

namespace {

bool is_free(const MipRow& row) { return std::isinf(row.lower) && std::isinf(row.upper); }

// E, G, L, or G with a range for rows bounded on both sides.
char type_of(const MipRow& row) {
  if (row.lower == row.upper) return 'E';
  return std::isinf(row.lower) ? 'L' : 'G';
}

void append_bounds(std::string& out, size_t index, const MipColumn& c) {
  const auto line = [&](const char* type, double value) {
    out += fmt::format(" {} BND C{} {:.17g}\n", type, index, value);
  };
  if (c.lower == c.upper) return line("FX", c.lower);
  if (std::isinf(c.lower) && std::isinf(c.upper)) {
    out += fmt::format(" FR BND C{}\n", index);
    return;
  }
  if (std::isinf(c.lower)) {
    out += fmt::format(" MI BND C{}\n", index);
  } else {
    line("LO", c.lower);
  }
  if (std::isinf(c.upper)) {
    // Readers give integer columns an upper bound of 1 unless another is said.
    if (c.integer) out += fmt::format(" PL BND C{}\n", index);
  } else {
    line("UP", c.upper);
  }
}

}  // namespace

std::string mps_text(const Mip& mip) {
  std::vector<std::vector<std::pair<size_t, double>>> by_column(mip.columns.size());
  std::string out = "* Rows Ri and columns Cj in the order of this list:\n";
  for (size_t i = 0; i < mip.rows.size(); ++i) out += fmt::format("* R{} {}\n", i, mip.rows[i].name);
  for (size_t i = 0; i < mip.columns.size(); ++i) out += fmt::format("* C{} {}\n", i, mip.columns[i].name);
  out += fmt::format("NAME {} FREE\nROWS\n N OBJ\n", mip.name);  // CBC takes free format only with this word
  for (size_t i = 0; i < mip.rows.size(); ++i) {
    if (is_free(mip.rows[i])) continue;
    out += fmt::format(" {} R{}\n", type_of(mip.rows[i]), i);
    for (const auto& [column, value] : mip.rows[i].entries)
      by_column[static_cast<size_t>(column)].emplace_back(i, value);
  }
  out += "COLUMNS\n";
  bool integer = false;
  int markers = 0;
  const auto mark = [&](bool begin) {
    out += fmt::format(" MARKER{} 'MARKER' {}\n", markers++, begin ? "'INTORG'" : "'INTEND'");
    integer = begin;
  };
  for (size_t i = 0; i < mip.columns.size(); ++i) {
    if (mip.columns[i].integer != integer) mark(!integer);
    out += fmt::format(" C{} OBJ {:.17g}\n", i, mip.columns[i].cost);
    for (const auto& [row, value] : by_column[i]) out += fmt::format(" C{} R{} {:.17g}\n", i, row, value);
  }
  if (integer) mark(false);
  out += "RHS\n";
  std::string ranges;
  for (size_t i = 0; i < mip.rows.size(); ++i) {
    const MipRow& row = mip.rows[i];
    if (is_free(row)) continue;
    const double side = type_of(row) == 'L' ? row.upper : row.lower;
    if (side != 0) out += fmt::format(" RHS R{} {:.17g}\n", i, side);
    if (type_of(row) == 'G' && !std::isinf(row.upper))
      ranges += fmt::format(" RNG R{} {:.17g}\n", i, row.upper - row.lower);
  }
  if (!ranges.empty()) out += "RANGES\n" + ranges;
  out += "BOUNDS\n";
  for (size_t i = 0; i < mip.columns.size(); ++i) append_bounds(out, i, mip.columns[i]);
  return out + "ENDATA\n";
}

void write_mps(const Mip& mip, const std::filesystem::path& path) { write_file(path, mps_text(mip)); }

}  // namespace lazytrain::plan
