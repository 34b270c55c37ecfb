#include "plan/mip/paper_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"

namespace lazytrain::plan {
namespace {

using Homes = std::vector<std::optional<Tier>>;

constexpr double kTolerance = 1e-9;  // GB

size_t at(int i) { return static_cast<size_t>(i); }

// GB/s and ms.
double rate_of(const PaperInstance& in, int lane) {
  const std::array<double, kPaperLanes> rates = {in.links_gbs.d2h, in.links_gbs.h2d, in.links_gbs.disk_write,
                                                 in.links_gbs.disk_read};
  return rates[at(lane)];
}
double capacity_gb(const PaperInstance& in, int lane, int window) {
  const bool is_out = lane == static_cast<int>(PaperLane::kOut) || lane == static_cast<int>(PaperLane::kDiskWrite);
  return rate_of(in, lane) * (is_out ? in.out_window_ms : in.back_window_ms)[at(window)] / 1000;
}
double mandatory_gb(const PaperInstance& in, int lane, int window) {
  if (lane == static_cast<int>(PaperLane::kOut)) return in.gradient_gb[at(window)];
  return lane == static_cast<int>(PaperLane::kBack) ? in.parameter_gb[at(window)] : 0;
}
bool uses(int lane, Tier home) {
  return home == Tier::kDisk || (home == Tier::kHost && lane <= static_cast<int>(PaperLane::kBack));
}
double budget_of(const PaperInstance& in, Tier tier) {
  return std::array<double, 3>{in.budget_gb.device, in.budget_gb.host, in.budget_gb.disk}[static_cast<size_t>(tier)];
}

// R of the block (s, e].
double block_ms(const PaperInstance& in, int s, int e) {
  double sum = 0;
  for (int j = s; j <= e - 2; ++j) sum += in.recompute_ms[at(j)];
  return sum;
}

// Late boundaries on the device, since they have the fewest windows to leave in and come back, then host, then disk.
std::optional<Homes> place(const PaperInstance& in, const std::vector<bool>& materialised) {
  Homes homes(materialised.size());
  std::array<double, 3> taken = {0, 0, 0};
  const auto put = [&](int i, Tier tier) {
    double& gb = taken[static_cast<size_t>(tier)];
    if (gb + in.boundary_gb[at(i)] > budget_of(in, tier)) return false;
    gb += in.boundary_gb[at(i)];
    homes[at(i)] = tier;
    return true;
  };
  const auto in_device_set = [&](int i) {
    return std::binary_search(in.fixed->device.begin(), in.fixed->device.end(), i);
  };
  if (!put(0, Tier::kDevice) || !put(in.layers, Tier::kDevice)) return std::nullopt;
  for (int i = in.layers - 1; i > 0; --i) {
    if (!materialised[at(i)]) continue;
    const bool device = !in.fixed || in_device_set(i);
    if (device && put(i, Tier::kDevice)) continue;
    const bool elsewhere = !in.fixed || !device;
    if (!elsewhere || !(put(i, Tier::kHost) || put(i, Tier::kDisk))) return std::nullopt;
  }
  return homes;
}

std::optional<Homes> first_homes(const PaperInstance& in) {
  std::vector<bool> materialised(at(in.layers) + 1, false);
  if (in.fixed) {
    for (const int i : in.fixed->checkpoints) materialised[at(i)] = true;
    return place(in, materialised);
  }
  for (int spacing = 1; spacing <= std::min(in.max_block, in.layers); ++spacing) {
    for (int i = 0; i <= in.layers; ++i) materialised[at(i)] = i % spacing == 0 || i == in.layers;
    if (auto homes = place(in, materialised)) return homes;
  }
  return std::nullopt;
}

class ProblemBuilder {
 public:
  explicit ProblemBuilder(const PaperInstance& instance) : in_(instance) {}

  PaperProblem run() {
    p_.mip.name = "paper";
    add_homes();
    add_path();
    add_traffic();
    add_windows();
    return std::move(p_);
  }

 private:
  Mip& mip() { return p_.mip; }
  int last() const { return in_.layers; }
  bool end(int i) const { return i == 0 || i == last(); }

  void fix(int column, double value) {
    MipColumn& c = mip().columns[at(column)];
    c.lower = c.upper = value;
  }

  void add_homes() {
    for (int i = 0; i <= last(); ++i) {
      const double z = in_.checkpoint_price;
      p_.homes.push_back({mip().add_binary(fmt::format("g{}", i), z), mip().add_binary(fmt::format("c{}", i), z),
                          mip().add_binary(fmt::format("n{}", i), z + in_.disk_price)});
      const auto& [g, c, n] = p_.homes.back();
      if (end(i)) {
        fix(g, 1);
        fix(c, 0);
        fix(n, 0);
      } else if (in_.fixed) {
        fix(g, std::binary_search(in_.fixed->device.begin(), in_.fixed->device.end(), i) ? 1 : 0);
      }
    }
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      LinearSum sum;
      for (int i = 0; i <= last(); ++i) sum.add(p_.homes[at(i)][static_cast<size_t>(tier)], in_.boundary_gb[at(i)]);
      mip().at_most(fmt::format("memory of {}", name_of(tier)), sum, budget_of(in_, tier));
    }
  }

  bool is_edge(int s, int e) const {
    if (!in_.fixed) return true;
    const auto& list = in_.fixed->checkpoints;
    const auto it = std::lower_bound(list.begin(), list.end(), s);
    return it != list.end() && *it == s && it + 1 != list.end() && *(it + 1) == e;
  }

  void add_path() {
    std::vector<LinearSum> into(at(last()) + 1), out_of(at(last()) + 1);
    p_.edges.resize(at(last()));
    for (int s = 0; s < last(); ++s) {
      for (int e = s + 1; e <= std::min(last(), s + in_.max_block); ++e) {
        const int x = mip().add_binary(fmt::format("x{}_{}", s, e), block_ms(in_, s, e));
        p_.edges[at(s)].push_back(x);
        out_of[at(s)].add(x, 1);
        into[at(e)].add(x, 1);
        if (in_.fixed) fix(x, is_edge(s, e) ? 1 : 0);
      }
    }
    for (int i = 0; i <= last(); ++i) {
      for (LinearSum* side : {&into[at(i)], &out_of[at(i)]}) {
        if ((side == &into[at(i)] && i == 0) || (side == &out_of[at(i)] && i == last())) continue;
        for (const int home : p_.homes[at(i)]) side->add(home, -1);
        mip().add_row(fmt::format("path at {}", i), 0, *side, 0);
      }
    }
  }

  void add_traffic() {
    const std::array<const char*, kPaperLanes> letters = {"d", "h", "q", "r"};
    for (int lane = 0; lane < kPaperLanes; ++lane) {
      auto& traffic = p_.traffic[at(lane)];
      traffic.resize(at(last()) + 1);
      if (rate_of(in_, lane) == 0) continue;
      for (int i = 1; i < last(); ++i) {
        LinearSum sum;
        for (int w = i; w < last(); ++w) {
          const int column = mip().add_column(fmt::format("{}{}_{}", letters[at(lane)], i, w), 0, kInfinity, 0);
          traffic[at(i)].push_back(column);
          sum.add(column, 1);
        }
        for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
          if (uses(lane, tier)) sum.add(p_.homes[at(i)][static_cast<size_t>(tier)], -in_.boundary_gb[at(i)]);
        }
        mip().add_row(fmt::format("all {} of {}", letters[at(lane)], i), 0, sum, 0);
      }
    }
  }

  // The slack beyond what the mandatory traffic needs, so that its constant part is no part of the objective.
  void add_windows() {
    const std::array<const char*, kPaperLanes> letters = {"D", "H", "W", "R"};
    for (int w = 0; w < last(); ++w) {
      p_.slack.push_back({-1, -1, -1, -1});
      for (int lane = 0; lane < kPaperLanes; ++lane) {
        if (rate_of(in_, lane) == 0) continue;
        const int e =
            mip().add_column(fmt::format("e{}_{}", letters[at(lane)], w), 0, kInfinity, 1000 / rate_of(in_, lane));
        p_.slack.back()[at(lane)] = e;
        LinearSum sum;
        for (int i = 1; i <= std::min(w, last() - 1); ++i) sum.add(p_.traffic[at(lane)][at(i)][at(w - i)], 1);
        sum.add(e, -1);
        const double spare = std::max(0.0, capacity_gb(in_, lane, w) - mandatory_gb(in_, lane, w));
        mip().at_most(fmt::format("{} in window {}", letters[at(lane)], w), sum, spare);
      }
    }
  }

  const PaperInstance& in_;
  PaperProblem p_;
};

}  // namespace

int PaperPlan::count(std::optional<Tier> home) const {
  return static_cast<int>(std::count(homes.begin(), homes.end(), home));
}

double mandatory_exposed_ms(const PaperInstance& in) {
  double ms = 0;
  for (int w = 0; w < in.layers; ++w) {
    for (const int lane : {static_cast<int>(PaperLane::kOut), static_cast<int>(PaperLane::kBack)}) {
      ms += 1000 * std::max(0.0, mandatory_gb(in, lane, w) - capacity_gb(in, lane, w)) / rate_of(in, lane);
    }
  }
  return ms;
}

PaperPlan price_paper_plan(const PaperInstance& in, const Homes& homes) {
  PaperPlan plan;
  plan.homes = homes;
  for (int s = 0, e = 1; e <= in.layers; ++e) {
    if (!homes[at(e)]) continue;
    plan.recompute_ms += block_ms(in, s, e);
    s = e;
  }
  for (int lane = 0; lane < kPaperLanes; ++lane) {
    if (rate_of(in, lane) == 0) continue;
    std::vector<double> spare;
    for (int w = 0; w < in.layers; ++w) {
      spare.push_back(std::max(0.0, capacity_gb(in, lane, w) - mandatory_gb(in, lane, w)));
    }
    for (int i = in.layers - 1; i > 0; --i) {
      if (!homes[at(i)] || !uses(lane, *homes[at(i)])) continue;
      double left = in.boundary_gb[at(i)];
      for (int w = i; w < in.layers && left > kTolerance; ++w) {
        const bool rest = w == in.layers - 1;  // what no window has room for is late in the last
        const double moved = rest ? left : std::min(left, spare[at(w)]);
        if (moved <= kTolerance) continue;
        plan.transfers[at(lane)].push_back({i, w, moved});
        plan.exposed_ms += 1000 * std::max(0.0, moved - spare[at(w)]) / rate_of(in, lane);
        spare[at(w)] = std::max(0.0, spare[at(w)] - moved);
        left -= moved;
      }
    }
  }
  const int stored = in.layers + 1 - plan.count(std::nullopt);
  plan.objective =
      plan.recompute_ms + plan.exposed_ms + in.checkpoint_price * stored + in.disk_price * plan.count(Tier::kDisk);
  return plan;
}

PaperProblem build_paper_problem(const PaperInstance& instance) { return ProblemBuilder(instance).run(); }

std::vector<double> PaperProblem::values_of(const PaperInstance& in, const PaperPlan& plan) const {
  std::vector<double> values(mip.columns.size(), 0);
  for (int s = 0, e = 1; e <= in.layers; ++e) {
    if (!plan.homes[at(e)]) continue;
    values[at(edges[at(s)][at(e - s - 1)])] = 1;
    s = e;
  }
  for (int i = 0; i <= in.layers; ++i) {
    if (plan.homes[at(i)]) values[at(homes[at(i)][static_cast<size_t>(*plan.homes[at(i)])])] = 1;
  }
  std::vector<std::array<double, kPaperLanes>> load(at(in.layers), {0, 0, 0, 0});
  for (int lane = 0; lane < kPaperLanes; ++lane) {
    for (const PaperMove& move : plan.transfers[at(lane)]) {
      values[at(traffic[at(lane)][at(move.boundary)][at(move.window - move.boundary)])] = move.gb;
      load[at(move.window)][at(lane)] += move.gb;
    }
    for (int w = 0; w < in.layers && rate_of(in, lane) > 0; ++w) {
      const double spare = std::max(0.0, capacity_gb(in, lane, w) - mandatory_gb(in, lane, w));
      values[at(slack[at(w)][at(lane)])] = std::max(0.0, load[at(w)][at(lane)] - spare);
    }
  }
  return values;
}

std::vector<std::optional<Tier>> PaperProblem::homes_of(const std::vector<double>& values) const {
  Homes result(homes.size());
  for (size_t i = 0; i < homes.size(); ++i) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      if (values[at(homes[i][static_cast<size_t>(tier)])] > 0.5) result[i] = tier;
    }
  }
  return result;
}

PaperSolution solve_paper(const PaperInstance& in, const SolveOptions& asked) {
  const auto begin = std::chrono::steady_clock::now();
  SolveOptions options = asked;
  if (options.solver.empty()) options.solver = has_highs() ? "highs" : "greedy";
  check_solver_name(options.solver, "solver");
  require_solver(options.solver);
  if (options.gap < 0) options.gap = in.gap;
  check_paper_instance(in, in.name.empty() ? "instance" : in.name);
  PaperSolution solution;
  solution.solver = options.solver;
  if (const auto homes = first_homes(in)) {
    solution.plan = price_paper_plan(in, *homes);
    solution.status = WindowStatus::kFeasible;
  }
  if (options.solver != "greedy" && options.time_limit_s > 0) {
    const PaperProblem problem = build_paper_problem(in);
    const auto start = solution.plan ? problem.values_of(in, *solution.plan) : std::vector<double>();
    const MipResult result = solve_mip(problem.mip, start, options);
    solution.words = result.words;
    if (!result.values.empty()) {
      PaperPlan plan = price_paper_plan(in, problem.homes_of(result.values));
      if (!solution.plan || plan.objective < solution.plan->objective) solution.plan = std::move(plan);
    }
    if (std::isfinite(result.bound)) solution.bound = std::max(0.0, result.bound);
    if (solution.plan) {
      solution.status = result.status == MipStatus::kGapReached ? WindowStatus::kOptimal : WindowStatus::kTimeLimit;
    }
  }
  if (solution.plan && solution.plan->objective > 0) {
    solution.bound = std::min(solution.bound, solution.plan->objective);
    solution.gap = 1 - solution.bound / solution.plan->objective;
  }
  solution.solve_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return solution;
}

}  // namespace lazytrain::plan
