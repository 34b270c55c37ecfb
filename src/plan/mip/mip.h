// A mixed-integer program: minimise cost over columns within bounds, under rows lower <= sum of entries <= upper.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lazytrain::plan {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct MipColumn {
  double lower = 0;
  double upper = kInfinity;
  double cost = 0;
  bool integer = false;
  std::string name;
};

// A sum of columns with coefficients and a constant; terms of one column may stand in it several times.
struct LinearSum {
  std::vector<std::pair<int, double>> terms;
  double constant = 0;
  LinearSum& add(int column, double coefficient);  // a negative column adds nothing
  LinearSum& add(const LinearSum& other, double factor = 1);
  LinearSum& add(double value);
};

struct MipRow {
  double lower = -kInfinity;
  double upper = kInfinity;
  std::vector<std::pair<int, double>> entries;  // ascending columns, each once, none 0
  std::string name;
};

struct Mip {
  std::string name = "lazytrain";
  std::vector<MipColumn> columns;
  std::vector<MipRow> rows;

  int add_column(std::string column_name, double lower, double upper, double cost);
  int add_binary(std::string column_name, double cost);
  // lower <= sum <= upper; the sum's constant goes to the other side, equal columns are added up. A row without entries
  // is left out when it holds and kept when it does not, so that the program stays infeasible.
  void add_row(std::string row_name, double lower, const LinearSum& sum, double upper);
  void at_least(std::string row_name, const LinearSum& sum, double lower) {
    add_row(std::move(row_name), lower, sum, kInfinity);
  }
  void at_most(std::string row_name, const LinearSum& sum, double upper) {
    add_row(std::move(row_name), -kInfinity, sum, upper);
  }

  double objective(const std::vector<double>& values) const;
  // By how much the values break bounds, rows and integrality at most, each row relative to its largest term (at least
  // 1). Infinite for a wrong number of values or NaN.
  double max_violation(const std::vector<double>& values) const;
  size_t entries() const;
};

// The program as a free-format MPS file with bounds and integer markers, numbers with all their digits, that HiGHS,
// SCIP and CBC read. Throws RunError when it cannot be written.
std::string mps_text(const Mip& mip);
void write_mps(const Mip& mip, const std::filesystem::path& path);

}  // namespace lazytrain::plan
