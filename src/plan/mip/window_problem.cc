#include "plan/mip/window_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "plan/mip/window_builder.h"

namespace lazytrain::plan {
namespace {

constexpr double kMaxEntries = 2e7;
constexpr double kTie = 1e-6;  // planner's own: a second's millionth for each checkpoint, and each on disk

// An entry that needs no less memory, recompute or workspace than another is no choice.
bool is_dominated(const std::vector<MenuEntry>& menu, size_t entry) {
  const MenuEntry& e = menu[entry];
  for (size_t i = 0; i < menu.size(); ++i) {
    const MenuEntry& other = menu[i];
    if (i == entry || other.retained_gb > e.retained_gb || other.recompute_s > e.recompute_s ||
        other.workspace_gb > e.workspace_gb) {
      continue;
    }
    const bool equal = other.retained_gb == e.retained_gb && other.recompute_s == e.recompute_s &&
                       other.workspace_gb == e.workspace_gb;
    if (!equal || i < entry) return true;
  }
  return false;
}

}  // namespace

WindowProblem WindowBuilder::build() {
  p_.columns.units.resize(units_);
  add_choices();
  add_windows();
  path_rows();
  choice_rows();
  traffic();
  disk_weight_rows();
  update_rows();
  start_rows();
  for (size_t u = 0; u < units_; ++u) {
    forward_rows(u);
    backward_rows(u);
  }
  memory_rows();
  head_rows();
  budget_rows();
  p_.max_ties = 2 * kTie * static_cast<double>(units_);
  return std::move(p_);
}

void WindowBuilder::add_retained(size_t u) {
  unit(u).retained.resize(in_.menu[u].size());
  for (size_t o = 0; o < in_.menu[u].size(); ++o) {
    if (is_dominated(in_.menu[u], o)) continue;
    auto& columns = unit(u).retained[o];
    const auto add = [&](const char* home) {
      columns.push_back(mip().add_binary(fmt::format("y_{}_{}_{}", u, o, home), 0));
    };
    add("device");
    if (o == 0) continue;
    if (has_host()) add("host");
    if (has_disk()) {
      columns.resize(2, -1);
      add("disk");
    }
  }
}

void WindowBuilder::add_choices() {
  for (size_t u = 0; u < units_; ++u) {
    const size_t longest = std::min(units_ - u, static_cast<size_t>(in_.max_block));
    for (size_t length = 1; length <= longest; ++length) {
      unit(u).edges.push_back(mip().add_binary(fmt::format("x_{}_{}", u, u + length), 0));
    }
    unit(u).on_device = binary("g", u, kTie);
    if (has_host()) unit(u).on_host = binary("c", u, kTie);
    if (has_disk()) unit(u).on_disk = binary("n", u, 2 * kTie);
    add_retained(u);
    unit(u).keep = binary("k", u);
    unit(u).device_home = binary("v", u);
    if (has_disk_homes()) unit(u).state_on_disk = binary("t", u);
    if (has_disk_homes() && in_.disk_weights) {
      unit(u).weights_on_disk = binary("q", u);
      unit(u).disk_refetch = amount("p", u);
    }
  }
}

void WindowBuilder::add_windows() {
  WindowColumns& c = p_.columns;
  const double disk = has_disk() ? kInfinity : 0;
  const double host = has_host() || has_disk() ? kInfinity : 0;
  for (size_t w = 0; w <= units_; ++w) {
    c.drain.push_back(amount("D", w, 0, host));
    c.back.push_back(amount("H", w, 0, host));
    c.disk_write.push_back(amount("Q", w, 0, disk));
    c.disk_read.push_back(amount("R", w, 0, disk));
    c.start.push_back(amount("s", w));
  }
  for (size_t u = 0; u < units_; ++u) {
    unit(u).forward = amount("Wf", u, in_.forward_s[u]);
    unit(u).backward = mip().add_column(named("Wb", u), in_.backward_s[u], kInfinity, 1);
    if (in_.update_in_backward) unit(u).early_update = amount("b", u);
  }
  c.head = mip().add_column("Wh", in_.head.compute_s, kInfinity, 1);
  mip().columns[static_cast<size_t>(c.start[units_])].cost = 1;
  c.tail = mip().add_column("tail", in_.tail_s, in_.tail_s, 1);
  c.disk_stream.resize(units_);
}

void WindowBuilder::path_rows() {
  for (size_t i = 0; i <= units_; ++i) {
    LinearSum in, out;
    if (i > 0) each_block_ending_with(i - 1, [&](size_t, int x) { in.add(x, 1); });
    if (i < units_) {
      for (const int x : unit(i).edges) out.add(x, 1);
    }
    if (i == 0) {
      mip().add_row("path_0", 1, out, 1);
    } else if (i == units_) {
      mip().add_row("path_end", 1, in, 1);
    } else {
      LinearSum visit = materialised(i);
      mip().add_row(named("path_in", i), 0, in.add(visit, -1), 0);
      mip().add_row(named("path_out", i), 0, out.add(visit, -1), 0);
    }
  }
  mip().add_row("z_0", 1, materialised(0), 1);
}

void WindowBuilder::choice_rows() {
  for (size_t u = 0; u < units_; ++u) {
    LinearSum one, homes, kept_or_home;
    for (const auto& columns : unit(u).retained) {
      for (const int column : columns) one.add(column, 1);
    }
    mip().add_row(named("retained", u), 1, one, 1);
    mip().at_most(named("keep_or_home", u), kept_or_home.add(unit(u).keep, 1).add(unit(u).device_home, 1), 1);
    if (unit(u).state_on_disk < 0) continue;
    mip().at_most(named("state_home", u), homes.add(unit(u).state_on_disk, 1).add(unit(u).device_home, 1), 1);
    if (unit(u).weights_on_disk < 0) continue;
    LinearSum weights;
    mip().at_least(named("weights_home", u), weights.add(unit(u).state_on_disk, 1).add(unit(u).weights_on_disk, -1), 0);
  }
}

// Bytes are interchangeable and the windows that an item may use are nested: sums of them are enough. `late`: what of a
// unit leaves in the next window at the earliest (sets_leave_behind).
WindowBuilder::Totals WindowBuilder::traffic_rows(const char* name, const std::vector<int>& there,
                                                  const std::vector<int>& back,
                                                  const std::function<LinearSum(size_t)>& leaving,
                                                  const std::function<LinearSum(size_t)>& late) {
  Totals t;
  const auto column = [](int c) { return LinearSum().add(c, 1); };
  const std::string prefix = name;
  t.left = running((prefix + "_left").c_str(), units_, leaving);
  t.gone = running((prefix + "_gone").c_str(), units_ + 1, [&](size_t w) { return column(there[w]); });
  // From the head's window down: returned[j] is what windows L - j and above brought.
  t.returned = running((prefix + "_returned").c_str(), units_ + 1, [&](size_t j) { return column(back[units_ - j]); });
  const int all = t.left[units_ - 1];
  for (size_t k = 0; k < units_; ++k) {
    LinearSum out = column(t.gone[k]).add(t.left[k], -1);
    if (in_.sets_leave_behind) out.add(late(k));
    mip().at_most(named((prefix + "_out").c_str(), k), out, 0);
    LinearSum back_in_time = column(t.returned[units_ - 1 - k]).add(all, -1);
    if (k > 0) back_in_time.add(t.left[k - 1], 1);
    mip().at_least(named((prefix + "_back").c_str(), k), back_in_time, 0);
  }
  mip().add_row(prefix + "_all_out", 0, column(t.gone[units_]).add(all, -1), 0);
  mip().add_row(prefix + "_all_back", 0, column(t.returned[units_]).add(all, -1), 0);
  return t;
}

void WindowBuilder::traffic() {
  const WindowColumns& c = p_.columns;
  const auto to_disk = [&](size_t u) { return retained_at(u, Tier::kDisk); };
  host_ = traffic_rows(
      "host", c.drain, c.back, [&](size_t u) { return out_of_device(u); },
      [&](size_t u) { return retained_at(u, Tier::kHost).add(to_disk(u)); });
  if (!has_disk()) return;
  traffic_rows(
      "disk", c.disk_write, c.disk_read, [&](size_t u) { return out_to_disk(u); }, to_disk);
}

LinearSum WindowBuilder::weights_into_forward(size_t u) {
  LinearSum sum;
  if (u + 1 < units_) {
    sum.add(away(u + 1), in_.weight_gb[u + 1]);
  } else {
    sum.add(in_.head.weight_gb);
  }
  return u == 0 ? sum.add(in_.boundary_gb[0]) : sum;
}

LinearSum WindowBuilder::weights_into_backward(size_t u) {
  LinearSum sum;
  if (u > 0) sum.add(away(u - 1), in_.weight_gb[u - 1]).add(unit(u - 1).keep, -in_.weight_gb[u - 1]);
  if (u == units_) return sum;
  // Before backward of a block's last unit the units before it run forward once more. The last of them is the next
  // whose backward runs: its weights come once.
  each_block_ending_with(u, [&](size_t first, int x) {
    for (size_t j = first; j + 1 < u; ++j) sum.add(x, in_.weight_gb[j]);
  });
  return sum;
}

LinearSum WindowBuilder::disk_weights_into_backward(size_t u) {
  LinearSum sum;
  if (u > 0) sum.add(unit(u - 1).disk_refetch, in_.weight_gb[u - 1]);
  if (u < units_) {
    for (const auto& [read, column] : p_.columns.disk_stream[u])
      sum.add(column, in_.weight_gb[static_cast<size_t>(read)]);
  }
  return sum;
}

// Products of choices: weights at home on disk that backward brings again because they were not kept, or because a
// block that begins before them is recomputed.
void WindowBuilder::disk_weight_rows() {
  if (unit(0).weights_on_disk < 0) return;
  for (size_t u = 0; u < units_; ++u) {
    const LinearSum refetch = LinearSum().add(unit(u).disk_refetch, 1).add(unit(u).weights_on_disk, -1);
    mip().at_least(named("refetch", u), LinearSum(refetch).add(unit(u).keep, 1), 0);
    const size_t reach = static_cast<size_t>(in_.max_block) - 1;
    for (size_t j = u > reach ? u - reach : 0; j + 1 < u; ++j) {
      const int column = mip().add_column(fmt::format("r_{}_{}", u, j), 0, kInfinity, 0);
      LinearSum row = LinearSum().add(column, 1).add(unit(j).weights_on_disk, -1);
      each_block_ending_with(u, [&](size_t first, int x) {
        if (first <= j) row.add(x, -1);
      });
      mip().at_least(fmt::format("stream_{}_{}", u, j), row, -1);
      p_.columns.disk_stream[u].emplace_back(static_cast<int>(j), column);
    }
  }
}

void WindowBuilder::forward_rows(size_t u) {
  const LinkRates& links = in_.links_gbs;
  const int window = unit(u).forward, drain = p_.columns.drain[u];
  const auto lasts = [&](const char* name, double rate, LinearSum traffic) {
    mip().at_least(named(name, u), LinearSum().add(window, rate).add(traffic, -1), 0);
  };
  const LinearSum in = weights_into_forward(u);
  lasts("f_compute", 1, LinearSum().add(in_.forward_s[u]).add(unit(u).device_home, in_.device_update_s[u]));
  lasts("f_d2h", links.d2h, LinearSum().add(drain, 1));
  lasts("f_h2d", links.h2d, in);
  lasts("f_joint", links.joint, LinearSum(in).add(drain, 1));
  if (has_disk()) lasts("f_write", links.disk_write, LinearSum().add(p_.columns.disk_write[u], 1));
}

void WindowBuilder::backward_rows(size_t u) {
  const LinkRates& links = in_.links_gbs;
  const WindowColumns& c = p_.columns;
  const auto lasts = [&](const char* name, double rate, LinearSum traffic) {
    mip().at_least(named(name, u), LinearSum().add(unit(u).backward, rate).add(traffic, -1), 0);
  };
  LinearSum compute = over_menu(u, &MenuEntry::recompute_s).add(in_.backward_s[u]);
  each_block_ending_with(u, [&](size_t first, int x) {
    for (size_t j = first; j < u; ++j) compute.add(x, in_.forward_s[j]);
  });
  LinearSum out, in = weights_into_backward(u);
  if (u + 1 < units_) {
    out.add(away(u + 1), in_.grad_gb[u + 1]);
  } else {
    out.add(in_.head.grad_gb);
  }
  if (u == 0) out.add(in_.boundary_gb[0]);
  in.add(c.back[u], 1);
  lasts("b_compute", 1, compute);
  lasts("b_h2d", links.h2d, in);
  lasts("b_d2h", links.d2h, out);
  lasts("b_joint", links.joint, in.add(out));
  if (in_.budget_gb.disk > 0) lasts("b_read", links.disk_read, disk_weights_into_backward(u).add(c.disk_read[u], 1));
}

void WindowBuilder::memory_rows() {
  const auto kept = [&](size_t u) { return LinearSum().add(unit(u).keep, in_.weight_gb[u]); };
  LinearSum homes;
  for (size_t u = 0; u < units_; ++u) homes.add(unit(u).device_home, in_.device_home_gb[u]);
  const int home = amount("homes", 0);
  mip().add_row("homes", 0, homes.add(home, -1), 0);
  p_.totals.emplace_back(home, static_cast<int>(mip().rows.size()) - 1);
  const auto held = running("f_held", units_, [&](size_t u) {
    return kept(u).add(materialised(u), in_.boundary_gb[u]).add(over_menu(u, &MenuEntry::retained_gb));
  });
  const auto stayed = running("b_held", units_, [&](size_t u) {
    return kept(u).add(unit(u).on_device, in_.boundary_gb[u]).add(retained_at(u, Tier::kDevice));
  });
  for (size_t u = 0; u < units_; ++u) {
    LinearSum forward, backward;
    forward.add(held[u], 1).add(home, 1);
    if (u > 0) forward.add(host_.gone[u - 1], -1);
    mip().at_most(named("f_memory", u), forward, in_.budget_gb.device - in_.forward_workspace_gb[u]);
    backward.add(stayed[u], 1).add(home, 1).add(host_.returned[units_ - u], 1);
    backward.add(host_.left[units_ - 1], -1).add(host_.left[u], 1).add(block_buffers(u));
    mip().at_most(named("b_memory", u), backward.add(over_menu(u, &MenuEntry::workspace_gb)), in_.budget_gb.device);
  }
}

// Recomputed boundaries that are alive in backward window u.
LinearSum WindowBuilder::block_buffers(size_t u) {
  LinearSum sum;
  for (size_t last = u; last < std::min(units_, u + static_cast<size_t>(in_.max_block)); ++last) {
    double bytes = 0;
    for (size_t first = u; first + static_cast<size_t>(in_.max_block) > last; --first) {
      sum.add(unit(first).edges[last - first], bytes);
      bytes += in_.boundary_gb[first];
      if (first == 0) break;
    }
  }
  return sum;
}

void WindowBuilder::head_rows() {
  const LinkRates& links = in_.links_gbs;
  const WindowColumns& c = p_.columns;
  const auto lasts = [&](const char* name, double rate, LinearSum traffic) {
    mip().at_least(name, LinearSum().add(c.head, rate).add(traffic, -1), 0);
  };
  const LinearSum out = LinearSum().add(c.drain[units_], 1);
  const LinearSum in = weights_into_backward(units_).add(c.back[units_], 1);
  lasts("h_d2h", links.d2h, out);
  lasts("h_h2d", links.h2d, in);
  lasts("h_joint", links.joint, LinearSum(out).add(in));
  if (in_.budget_gb.disk <= 0) return;
  lasts("h_write", links.disk_write, LinearSum().add(c.disk_write[units_], 1));
  lasts("h_read", links.disk_read, disk_weights_into_backward(units_).add(c.disk_read[units_], 1));
}

void WindowBuilder::budget_rows() {
  LinearSum state, disk;  // in host memory, on disk
  for (size_t u = 0; u < units_; ++u) {
    disk.add(out_to_disk(u)).add(staged(u));
    if (!in_.has_disk_homes()) continue;
    state.add(away(u), in_.host_state_gb[u] + in_.host_weight_gb[u]).add(staged(u), -1);
  }
  const auto left = running("host_held", units_, [&](size_t u) { return out_of_device(u).add(out_to_disk(u), -1); });
  if (in_.host_end_gb > 0) mip().at_most("host_end", state, in_.budget_gb.host - in_.host_end_gb);
  if (has_disk_homes()) {
    std::vector<LinearSum> most;
    for (size_t u = 0; u < units_; ++u) most.push_back(LinearSum().add(staged(u), in_.staged_share()));
    state.add(least_of("staging", 0, most), 1);
  }
  mip().at_most("host", state.add(left[units_ - 1], 1), in_.budget_gb.host);
  mip().at_most("disk", disk, in_.budget_gb.disk);
}

namespace {

// How many entries a row has at most, times the rows: what hostile sizes would make of it.
void check_size(const Instance& instance) {
  double menu = 0;
  for (const auto& entries : instance.menu) menu += static_cast<double>(entries.size());
  const double units = instance.units, block = std::min(instance.max_block, instance.units);
  const double entries = units * block * block + 40 * menu;
  if (entries > kMaxEntries) {
    throw InputError(
        "{} units with blocks of up to {} and {} retained sets make a program of {:.0f} entries, at most {:.0f} "
        "are solved: a smaller \"max_block\" or \"menu\"",
        instance.units, instance.max_block, menu, entries, kMaxEntries);
  }
}

}  // namespace

WindowProblem build_problem(const Instance& instance) {
  check_size(instance);
  return WindowBuilder(instance).build();
}

}  // namespace lazytrain::plan
