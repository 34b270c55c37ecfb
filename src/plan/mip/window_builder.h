// How window_problem.h's program is written down, row by row.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/mip/window_problem.h"

namespace lazytrain::plan {

class WindowBuilder {
 public:
  explicit WindowBuilder(const Instance& instance) : in_(instance), units_(static_cast<size_t>(instance.units)) {}

  WindowProblem build();

 private:
  using Unit = WindowColumns::Unit;
  Unit& unit(size_t u) { return p_.columns.units[u]; }
  Mip& mip() { return p_.mip; }
  static std::string named(const char* name, size_t u) { return fmt::format("{}_{}", name, u); }
  // Running totals as columns of their own: rows stay short, and so do the factors of the simplex basis.
  std::vector<int> running(const char* name, size_t count, const std::function<LinearSum(size_t)>& item) {
    std::vector<int> totals;
    for (size_t i = 0; i < count; ++i) {
      totals.push_back(amount(name, i));
      LinearSum row = item(i);
      row.add(totals[i], -1);
      if (i > 0) row.add(totals[i - 1], 1);
      mip().add_row(named(name, i), 0, row, 0);
      p_.totals.emplace_back(totals[i], static_cast<int>(mip().rows.size()) - 1);
    }
    return totals;
  }
  int binary(const char* name, size_t u, double cost = 0) { return mip().add_binary(named(name, u), cost); }
  int amount(const char* name, size_t u, double lower = 0, double upper = kInfinity) {
    return mip().add_column(named(name, u), lower, upper, 0);
  }
  // A column that is as small as its rows allow.
  int least_of(const char* name, size_t u, const std::vector<LinearSum>& at_least) {
    const int column = amount(name, u);
    std::vector<int> rows;
    for (const LinearSum& sum : at_least) {
      mip().at_least(fmt::format("{}_{}_{}", name, u, rows.size()), LinearSum().add(column, 1).add(sum, -1), 0);
      rows.push_back(static_cast<int>(mip().rows.size()) - 1);
    }
    p_.chained.emplace_back(column, std::move(rows));
    return column;
  }
  bool has_host() const { return in_.budget_gb.host > 0; }
  bool has_disk() const { return in_.offers_disk(); }
  bool has_disk_homes() const { return in_.has_disk_homes() && in_.budget_gb.disk > 0; }

  void add_choices();
  void add_retained(size_t u);
  void add_windows();
  void path_rows();
  void choice_rows();
  struct Totals {  // of one way off the device and back
    std::vector<int> left, gone, returned;
  };
  Totals traffic_rows(const char* name, const std::vector<int>& there, const std::vector<int>& back,
                      const std::function<LinearSum(size_t)>& leaving, const std::function<LinearSum(size_t)>& late);
  void traffic();
  void disk_weight_rows();
  void update_rows();
  std::vector<LinearSum> read_rows(size_t u, const std::vector<int>& read, const std::vector<int>& written);
  void stall_rows(size_t u, const std::vector<int>& written);
  void early_update_rows();
  void start_rows();
  void forward_rows(size_t u);
  void backward_rows(size_t u);
  void memory_rows();
  LinearSum block_buffers(size_t u);
  void head_rows();
  void budget_rows();

  // Sums over the choices of unit u.
  LinearSum out_of_device(size_t u) {  // O: bytes that leave the device with unit u
    LinearSum sum = out_to_disk(u);
    sum.add(unit(u).on_host, in_.boundary_gb[u]);
    return sum.add(retained_at(u, Tier::kHost));
  }
  LinearSum out_to_disk(size_t u) {  // N: those of them that go on to disk
    LinearSum sum;
    sum.add(unit(u).on_disk, in_.boundary_gb[u]);
    return sum.add(retained_at(u, Tier::kDisk));
  }
  LinearSum retained_at(size_t u, Tier home) {
    LinearSum sum;
    for (size_t o = 0; o < in_.menu[u].size(); ++o) sum.add(y(u, o, home), in_.menu[u][o].retained_gb);
    return sum;
  }
  int y(size_t u, size_t entry, Tier home) {
    const auto& columns = unit(u).retained[entry];
    const auto h = static_cast<size_t>(home);
    return h < columns.size() ? columns[h] : -1;
  }
  LinearSum over_menu(size_t u, double MenuEntry::*value) {
    LinearSum sum;
    for (size_t o = 0; o < in_.menu[u].size(); ++o) {
      for (const int column : unit(u).retained[o]) sum.add(column, in_.menu[u][o].*value);
    }
    return sum;
  }
  LinearSum materialised(size_t u) {  // z
    return LinearSum().add(unit(u).on_device, 1).add(unit(u).on_host, 1).add(unit(u).on_disk, 1);
  }
  LinearSum away(size_t u) {  // 1 - v
    LinearSum sum;
    return sum.add(1.0).add(unit(u).device_home, -1);
  }
  // h2d of weights: into forward window u, into backward window u (the head's for u = L).
  LinearSum weights_into_forward(size_t u);
  LinearSum staged(size_t u) {  // S: what comes from disk for the update and goes back behind it
    LinearSum sum;
    if (unit(u).state_on_disk < 0) return sum;
    sum.add(unit(u).state_on_disk, in_.host_state_gb[u]);
    return sum.add(unit(u).weights_on_disk, in_.host_weight_gb[u]);
  }
  LinearSum weights_into_backward(size_t u);
  LinearSum disk_weights_into_backward(size_t u);
  template <typename F>
  void each_block_ending_with(size_t last, F&& f) {  // f(first unit, column)
    const auto longest = std::min(last + 1, static_cast<size_t>(in_.max_block));
    for (size_t length = 1; length <= longest; ++length) {
      const size_t first = last + 1 - length;
      f(first, unit(first).edges[length - 1]);
    }
  }

  const Instance& in_;
  size_t units_;
  WindowProblem p_;
  Totals host_;
  std::vector<int> updated_;  // e
};

}  // namespace lazytrain::plan
