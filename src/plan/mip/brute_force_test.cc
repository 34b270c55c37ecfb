// The optimum against every choice there is: planner's constraints once more, with the choices as numbers and a linear
// program for the rest, which shares no row with the one that is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "plan/mip/instance_testing.h"
#include "plan/mip/solve.h"

namespace lazytrain::plan {
namespace {

using testing::random_instance;
using testing::RandomInstance;

struct Numbers {  // what choices come to, by unit
  std::vector<double> z, device, out, disk, kept, v, k, q, update, compute, block_gb, block_in, block_read, workspace,
      staged, late, late_to_disk;
};

Numbers numbers_of(const Instance& in, const WindowChoices& choices) {
  Numbers n;
  const auto units = static_cast<size_t>(in.units);
  for (size_t u = 0; u < units; ++u) {
    const UnitChoice& c = choices.units[u];
    const MenuEntry& e = in.menu[u][static_cast<size_t>(c.menu)];
    const auto home = choices.boundaries[u];
    n.z.push_back(home ? in.boundary_gb[u] : 0);
    n.kept.push_back(e.retained_gb);
    n.device.push_back((home == Tier::kDevice ? in.boundary_gb[u] : 0) +
                       (c.retained_home == Tier::kDevice ? e.retained_gb : 0));
    n.disk.push_back((home == Tier::kDisk ? in.boundary_gb[u] : 0) +
                     (c.retained_home == Tier::kDisk ? e.retained_gb : 0));
    n.out.push_back(n.z[u] + n.kept[u] - n.device[u]);
    const bool late = in.sets_leave_behind && c.retained_home != Tier::kDevice;
    n.late.push_back(late ? e.retained_gb : 0);
    n.late_to_disk.push_back(c.retained_home == Tier::kDisk ? n.late[u] : 0);
    n.v.push_back(c.device_home);
    n.k.push_back(c.keep_weights);
    n.q.push_back(c.weights_on_disk);
    n.update.push_back(c.device_home ? 0 : in.update_s[u]);
    n.staged.push_back((c.state_on_disk ? in.host_state_gb[u] : 0) + (c.weights_on_disk ? in.host_weight_gb[u] : 0));
    n.workspace.push_back(e.workspace_gb);
    n.compute.push_back(in.backward_s[u] + e.recompute_s);
    n.block_gb.push_back(0);
    n.block_in.push_back(0);
    n.block_read.push_back(0);
  }
  for (const auto& [s, e] : edges_of(choices)) {
    for (int u = s + 1; u < e; ++u) {
      for (int j = s + 1; j <= u; ++j) n.block_gb[static_cast<size_t>(u)] += in.boundary_gb[static_cast<size_t>(j)];
    }
    const auto last = static_cast<size_t>(e - 1);
    for (int j = s; j <= e - 2; ++j) n.compute[last] += in.forward_s[static_cast<size_t>(j)];
    for (int j = s; j <= e - 3; ++j) {
      n.block_in[last] += in.weight_gb[static_cast<size_t>(j)];
      n.block_read[last] += in.weight_gb[static_cast<size_t>(j)] * n.q[static_cast<size_t>(j)];
    }
  }
  return n;
}

// Memory with all traffic leaving at once and coming back at the last moment.
bool fits(const Instance& in, const WindowChoices& choices, const Numbers& n) {
  double homes = 0, host = 0, disk = 0, staging = 0;
  for (size_t u = 0; u < n.z.size(); ++u) {
    homes += n.v[u] * in.device_home_gb[u];
    disk += n.disk[u] + n.staged[u];
    if (!in.has_disk_homes() || choices.units[u].device_home) continue;
    host += in.host_state_gb[u] + in.host_weight_gb[u] - n.staged[u];
  }
  if (host + in.host_end_gb > in.budget_gb.host + 1e-9) return false;
  for (size_t u = 0; u < n.z.size(); ++u) {
    staging = std::max(staging, 3 * n.staged[u] / in.state_pieces);
    host += n.out[u] - n.disk[u];
  }
  if (host + staging > in.budget_gb.host + 1e-9 || disk > in.budget_gb.disk + 1e-9) return false;
  double stays = homes;
  for (size_t u = 0; u < n.z.size(); ++u) {
    const double forward = stays + n.z[u] + n.kept[u] + (u > 0 ? n.late[u - 1] : 0) + n.k[u] * in.weight_gb[u] +
                           in.forward_workspace_gb[u];
    stays += n.device[u] + n.k[u] * in.weight_gb[u];
    const double backward = stays + n.out[u] + (u > 0 ? n.out[u - 1] : 0) + n.block_gb[u] + n.workspace[u];
    if (std::max(forward, backward) > in.budget_gb.device + 1e-9) return false;
  }
  return true;
}

// What each window moves whatever else: h2d, d2h, disk read.
struct Fixed {
  double in = 0, out = 0, read = 0, compute = 0;
  double least(const LinkRates& l) const {
    return std::max({compute, in / l.h2d, out / l.d2h, (in + out) / l.joint, read > 0 ? read / l.disk_read : 0});
  }
};
struct Windows {
  std::vector<Fixed> forward, backward;
  Fixed head;
};

Windows windows_of(const Instance& in, const Numbers& n) {
  Windows w;
  const size_t units = n.z.size();
  for (size_t u = 0; u < units; ++u) {
    Fixed f{0, 0, 0, in.forward_s[u] + n.v[u] * in.device_update_s[u]};
    f.in =
        (u + 1 < units ? in.weight_gb[u + 1] * (1 - n.v[u + 1]) : in.head.weight_gb) + (u == 0 ? in.boundary_gb[0] : 0);
    Fixed b{n.block_in[u], 0, n.block_read[u], n.compute[u]};
    b.out = (u + 1 < units ? in.grad_gb[u + 1] * (1 - n.v[u + 1]) : in.head.grad_gb) + (u == 0 ? in.boundary_gb[0] : 0);
    const double again = u > 0 ? in.weight_gb[u - 1] * (1 - n.k[u - 1] - n.v[u - 1]) : 0;
    b.in += again;
    b.read += u > 0 ? again * n.q[u - 1] : 0;
    w.forward.push_back(f);
    w.backward.push_back(b);
  }
  const double last = in.weight_gb[units - 1] * (1 - n.k[units - 1] - n.v[units - 1]);
  w.head = {last, 0, last * n.q[units - 1], in.head.compute_s};
  return w;
}

// A step that no traffic makes shorter: windows as they are, all traffic in them, updates before their forward.
double least_step(const Instance& in, const Numbers& n, const Windows& w) {
  const LinkRates& l = in.links_gbs;
  double out = 0, forward_in = w.head.in, backward_in = w.head.in, grads = 0, forward = 0, backward = 0;
  for (size_t u = 0; u < n.z.size(); ++u) {
    out += n.out[u];
    forward_in += w.forward[u].in;
    backward_in += w.backward[u].in;
    grads += w.backward[u].out;
    forward += w.forward[u].least(l);
    backward += w.backward[u].least(l);
  }
  const double head = w.head.least(l);
  double starts = 0, left = forward, updates = in.embedding_update_s;
  for (size_t u = 0; u < n.z.size() && in.chase && !in.update_in_backward; ++u) {
    updates += n.update[u];
    starts = std::max(starts, updates + (1 - n.v[u]) * in.weight_gb[u] / l.h2d + left);
    left -= w.forward[u].least(l);
  }
  const double stretched_forward = std::max({forward + head, out / l.d2h, (out + forward_in) / l.joint});
  const double stretched_backward =
      std::max({backward + head, (out + backward_in) / l.h2d, (out + backward_in + grads) / l.joint});
  return std::max({starts + head + backward, stretched_forward + backward, stretched_backward + forward,
                   starts + stretched_backward});
}

// The linear program that is left when everything is chosen.
double best_step(const Instance& in, const Numbers& n, const Windows& w) {
  Mip lp;
  const size_t units = n.z.size();
  std::vector<int> d, h, q, r, wf, wb, s, early;
  const auto list = [&](std::vector<int>& columns, size_t count, double cost) {
    for (size_t i = 0; i < count; ++i) columns.push_back(lp.add_column("c", 0, kInfinity, cost));
  };
  for (auto* traffic : {&d, &h, &q, &r}) list(*traffic, units + 1, 0);
  list(wf, units, 0);
  list(wb, units, 1);
  list(s, units + 1, 0);
  list(early, units, 0);
  lp.columns[static_cast<size_t>(s[units])].cost = 1;
  const int head = lp.add_column("head", w.head.compute, kInfinity, 1);
  const auto sum = [&](const std::vector<int>& columns, size_t begin, size_t end, double factor = 1) {
    LinearSum out;
    for (size_t i = begin; i < end; ++i) out.add(columns[i], factor);
    return out;
  };
  const auto total = [](const std::vector<double>& v, size_t begin, size_t end) {
    double out = 0;
    for (size_t i = begin; i < end; ++i) out += v[i];
    return out;
  };
  const auto window = [&](int length, const Fixed& f, int in_column, int out_column, int read, int write) {
    const LinkRates& l = in.links_gbs;
    lp.at_least("", LinearSum().add(length, 1), f.compute);
    lp.at_least("", LinearSum().add(length, l.h2d).add(in_column, -1), f.in);
    lp.at_least("", LinearSum().add(length, l.d2h).add(out_column, -1), f.out);
    lp.at_least("", LinearSum().add(length, l.joint).add(in_column, -1).add(out_column, -1), f.in + f.out);
    lp.at_least("", LinearSum().add(length, l.disk_read).add(read, -1), f.read);
    lp.at_least("", LinearSum().add(length, l.disk_write).add(write, -1), 0);
  };
  const auto both_ways = [&](const std::vector<int>& there, const std::vector<int>& back,
                             const std::vector<double>& items, const std::vector<double>& late) {
    const double all = total(items, 0, units);
    for (size_t k = 0; k < units; ++k) {
      lp.at_most("", sum(there, 0, k + 1), total(items, 0, k + 1) - late[k]);
      lp.at_least("", sum(back, k + 1, units + 1), total(items, k, units));
    }
    lp.add_row("", all, sum(there, 0, units + 1), all);
    lp.add_row("", all, sum(back, 0, units + 1), all);
  };
  both_ways(d, h, n.out, n.late);
  both_ways(q, r, n.disk, n.late_to_disk);
  double homes = 0, held = 0, stays = 0;
  for (size_t u = 0; u < units; ++u) homes += n.v[u] * in.device_home_gb[u];
  for (size_t u = 0; u < units; ++u) {
    window(wf[u], w.forward[u], -1, d[u], -1, q[u]);
    window(wb[u], w.backward[u], h[u], -1, r[u], -1);
    held += n.z[u] + n.kept[u] + n.k[u] * in.weight_gb[u];
    stays += n.device[u] + n.k[u] * in.weight_gb[u];
    lp.at_most("", sum(d, 0, u, -1), in.budget_gb.device - in.forward_workspace_gb[u] - held - homes);
    lp.at_most("", sum(h, u, units + 1),
               in.budget_gb.device - homes - stays - n.block_gb[u] - n.workspace[u] + total(n.out, u + 1, units));
    lp.at_least("", LinearSum().add(s[u + 1], 1).add(s[u], -1).add(wf[u], -1), 0);
    // Updates: early ones fit into what is left of backward once their gradients are there.
    lp.at_most("", LinearSum().add(early[u], 1), in.update_in_backward && n.staged[u] == 0 ? n.update[u] : 0);
    double stored = 0;  // gradients, before updates
    for (size_t g = 2; g <= u && !in.accumulate_s.empty(); ++g) {
      stored += std::min(in.accumulate_s[g], in.backward_s[g - 2]);
    }
    lp.at_most("", sum(early, 0, u + 1).add(sum(wb, 0, u < 1 ? 0 : u - 1), -1), -stored);
  }
  // Three lanes an update passes: ended[lane][u] is when the lane is done with unit u.
  std::vector<int> ended[3];
  for (auto& lane : ended) list(lane, units, 0);
  for (size_t u = 0; u < units; ++u) {
    const auto waits = [&](int column, int other, double seconds, int less, int more, double factor) {
      lp.at_least("", LinearSum().add(column, 1).add(other, -1).add(less, 1).add(more, -factor), seconds);
    };
    const bool disk = in.has_disk_homes() && in.budget_gb.disk > 0;
    const double read = disk ? n.staged[u] / in.links_gbs.disk_read : 0;
    const double write = disk ? n.staged[u] / in.links_gbs.disk_write : 0;
    waits(ended[1][u], u > 0 ? ended[1][u - 1] : -1, n.update[u] + (u > 0 ? 0 : in.embedding_update_s), early[u], -1,
          0);
    if (!disk) continue;
    waits(ended[0][u], u > 0 ? ended[0][u - 1] : -1, read, -1, -1, 0);
    const double pieces = in.state_pieces;
    if (pieces <= 3) {
      if (u >= 3) waits(ended[0][u], ended[2][u - 3], read, -1, -1, 0);
      waits(ended[1][u], ended[0][u], n.update[u], early[u], -1, 0);
      waits(ended[2][u], ended[1][u], write, -1, -1, 0);
    } else {  // three pieces at once, which may be read ahead of a unit whose state is in host memory
      const bool moves = n.staged[u] > 0;
      const double ahead = moves ? 0 : in.staged_s(), update = moves ? n.update[u] : 0;
      waits(ended[0][u], u > 0 ? ended[1][u - 1] : -1,
            (update + write + (pieces - 3) * read) / pieces - ahead + (u > 0 ? 0 : in.embedding_update_s), -1, -1, 0);
      if (u > 0) waits(ended[0][u], ended[2][u - 1], ((pieces - 3) * write + read) / pieces - ahead, -1, -1, 0);
      waits(ended[1][u], ended[0][u], update / pieces, -1, -1, 0);
      waits(ended[2][u], ended[1][u], write / pieces, -1, -1, 0);
    }
    if (u > 0) waits(ended[2][u], ended[2][u - 1], write, -1, in.chase ? q[u - 1] : -1, 1 / in.links_gbs.disk_write);
  }
  for (size_t u = 0; u < (in.chase ? units : 1); ++u) {
    lp.at_least("", LinearSum().add(s[u], 1).add(ended[1][in.chase ? u : units - 1], -1),
                (1 - n.v[u]) * in.weight_gb[u] / in.links_gbs.h2d + (u == 0 ? in.lead_s : 0));
  }
  window(head, w.head, h[units], d[units], r[units], q[units]);
  if (in.head_update_s > 0) {
    lp.at_least("", LinearSum().add(s[units], 1).add(ended[1][units - 1], -1),
                in.head_update_s + in.head.weight_gb / in.links_gbs.h2d);
  }
  const MipResult result = solve_mip(lp, {}, {"highs", 60, 0});
  EXPECT_EQ(result.status, MipStatus::kGapReached) << result.words;
  return result.objective + in.tail_s;
}

std::vector<UnitChoice> unit_choices(const Instance& in, size_t u) {
  std::vector<UnitChoice> sets = {{}}, out;
  for (size_t o = 1; o < in.menu[u].size(); ++o) {
    for (const Tier home : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      if ((home == Tier::kHost && in.budget_gb.host <= 0) || (home == Tier::kDisk && !in.offers_disk())) continue;
      UnitChoice c;
      c.menu = static_cast<int>(o);
      c.retained_home = home;
      sets.push_back(c);
    }
  }
  for (UnitChoice c : sets) {
    for (int weights = 0; weights < (!in.has_disk_homes() ? 3 : in.disk_weights ? 7 : 5); ++weights) {
      c.keep_weights = weights == 1 || weights == 4 || weights == 6;
      c.device_home = weights == 2;
      c.state_on_disk = weights >= 3;
      c.weights_on_disk = weights >= 5;
      if (c.device_home && in.device_home_gb[u] > in.budget_gb.device) continue;
      out.push_back(c);
    }
  }
  return out;
}

// The best step over all choices; infinite when nothing fits.
double brute_force(const Instance& in) {
  struct Candidate {
    double least;
    WindowChoices choices;
  };
  std::vector<Candidate> candidates;
  const auto units = static_cast<size_t>(in.units);
  WindowChoices choices{std::vector<std::optional<Tier>>(units), std::vector<UnitChoice>(units)};
  std::vector<std::vector<UnitChoice>> of_unit;
  for (size_t u = 0; u < units; ++u) of_unit.push_back(unit_choices(in, u));
  const std::function<void(size_t, int)> choose = [&](size_t u, int length) {
    if (u == units) {
      const Numbers n = numbers_of(in, choices);
      if (fits(in, choices, n)) candidates.push_back({least_step(in, n, windows_of(in, n)), choices});
      return;
    }
    for (const std::optional<Tier> home : {std::optional<Tier>(Tier::kDevice), std::optional<Tier>(Tier::kHost),
                                           std::optional<Tier>(Tier::kDisk), std::optional<Tier>()}) {
      if ((home == Tier::kHost && in.budget_gb.host <= 0) || (home == Tier::kDisk && !in.offers_disk())) continue;
      if (!home && (u == 0 || length >= in.max_block)) continue;
      choices.boundaries[u] = home;
      for (const UnitChoice& c : of_unit[u]) {
        choices.units[u] = c;
        choose(u + 1, home ? 1 : length + 1);
      }
    }
  };
  choose(0, 0);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.least < b.least; });
  double best = kInfinity;
  for (const Candidate& c : candidates) {
    if (c.least >= best - 1e-9) break;
    const Numbers n = numbers_of(in, c.choices);
    best = std::min(best, best_step(in, n, windows_of(in, n)));
  }
  return best;
}

// Under a sanitizer one of each kind is enough.
#ifdef LAZYTRAIN_SANITIZED
constexpr uint64_t kMost = 1;
#else
constexpr uint64_t kMost = 1000;
#endif

void compare(const RandomInstance& kind, uint64_t first, uint64_t count) {
  if (!has_highs()) GTEST_SKIP() << "this build has no HiGHS";
  int feasible = 0;
  for (uint64_t seed = first; seed < first + std::min(count, kMost); ++seed) {
    const Instance instance = random_instance(kind, seed);
    check_instance(instance, instance.name);
    const double best = brute_force(instance);
    const WindowSolution solved = solve_instance(instance, {"highs", 60, 0});
    SCOPED_TRACE(instance.name);
    ASSERT_EQ(solved.plan.has_value(), std::isfinite(best)) << "brute force: " << best;
    const WindowSolution greedy = solve_instance(instance, {"greedy", 60, 0});
    if (!instance.has_disk_homes() || !solved.plan) {
      ASSERT_EQ(greedy.plan.has_value(), solved.plan.has_value());
    }
    if (!solved.plan) continue;
    ++feasible;
    EXPECT_NEAR(solved.step_s, best, 1e-6 * best);
    EXPECT_LE(solved.bound_s, best * (1 + 1e-6));
    EXPECT_EQ(check(instance, *solved.plan), std::vector<std::string>());
    if (!greedy.plan) continue;
    EXPECT_EQ(check(instance, *greedy.plan), std::vector<std::string>());
    EXPECT_GE(greedy.step_s, best * (1 - 1e-6));
    EXPECT_LE(greedy.step_s, best * 1.25);
  }
  if (count <= kMost) {
    EXPECT_GT(feasible, static_cast<int>(count / 3));
  }
}

TEST(BruteForce, TwoUnits) { compare({2, true, true}, 0, 60); }
TEST(BruteForce, TwoUnitsWithoutDisk) { compare({2, true, false}, 500, 80); }
TEST(BruteForce, ThreeUnitsWithHost) { compare({3, true, false}, 1000, 12); }
TEST(BruteForce, FourUnitsOnDeviceAlone) { compare({4, false, false}, 2000, 80); }
TEST(BruteForce, FiveUnitsOnDeviceAlone) { compare({5, false, false}, 3000, 10); }
TEST(BruteForce, SixUnitsOnDeviceAlone) { compare({6, false, false}, 3500, 1); }
TEST(BruteForce, StateOnDisk) { compare({2, true, true, true}, 4000, 10); }
TEST(BruteForce, SetsLeaveBehindTheirUnit) {
  RandomInstance kind{3, true, false};
  kind.sets_leave_behind = true;
  compare(kind, 10000, 12);
  compare({2, true, true, false, false, true, false, true}, 10100, 20);
}
TEST(BruteForce, StateAloneOnDisk) {
  RandomInstance kind{3, true, true, true};
  kind.state_alone_on_disk = kind.sets_leave_behind = true;
  compare(kind, 11000, 6);
}
TEST(BruteForce, StateOnDiskInPieces) {
  RandomInstance kind{2, true, true, true, false, true, true};
  kind.state_pieces = 6;
  compare(kind, 13000, 10);
  kind.units = 3;
  kind.state_alone_on_disk = true;
  compare(kind, 13100, 6);
}
TEST(BruteForce, StateOnDiskWithoutChasing) { compare({2, true, true, true, false, false}, 12000, 8); }
TEST(BruteForce, StateOnDiskAndBlocks) { compare({3, false, true, true}, 4500, 3); }
TEST(BruteForce, UpdatesInBackward) { compare({3, true, false, false, true}, 5000, 6); }
TEST(BruteForce, UpdatesInBackwardWithoutChasing) { compare({3, true, false, false, true, false}, 6000, 6); }
TEST(BruteForce, WithoutChasing) { compare({3, true, false, false, false, false}, 7000, 6); }
TEST(BruteForce, ExtraUpdates) { compare({2, true, true, false, false, true, true}, 8000, 15); }
TEST(BruteForce, UpdatesInBackwardBehindStoring) { compare({3, true, false, false, true, true, true}, 14000, 8); }
TEST(BruteForce, ExtraUpdatesInBackward) { compare({2, true, true, false, true, true, true}, 9000, 15); }

}  // namespace
}  // namespace lazytrain::plan
