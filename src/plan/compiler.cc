#include "plan/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "plan/cost.h"
#include "plan/placement.h"

namespace lazytrain::plan {
namespace {

constexpr int kEmbedding = 0;

}  // namespace

Compiler::Compiler(const graph::Graph& graph, const Policy& policy, const CompileOptions& options)
    : graph_(graph), options_(options) {
  program_.policy = policy;
  program_.policy.made_for.model = facts_of(graph);
  program_.policy.made_for.machine.reset();
  if (options.machine != nullptr) program_.policy.made_for.machine = facts_of(*options.machine);
  program_.compute = options.compute;
  program_.one_memory = options.machine == nullptr || options.machine->one_memory;
  program_.micro_batches = static_cast<int>(policy.micro_batches());
  program_.dims = {policy.micro_batch * policy.seq, policy.seq, size_of(options.compute)};
  head_ = static_cast<int>(graph.units.size()) - 1;
  check_homes();
  const auto per_micro = static_cast<size_t>(micros());
  boundaries_.assign(graph.units.size() - 1, std::vector<int>(per_micro, -1));
  retained_.assign(graph.units.size(), std::vector<int>(per_micro, -1));
  gradients_.assign(per_micro, -1);
  updated_.assign(graph.units.size(), false);
  kept_weights_.assign(graph.units.size(), -1);
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const auto values = graph::values_by_name(graph.units[u], policy.units[u].retained);
    program_.retained.push_back(graph::retained_set(graph.units[u], values, program_.dims));
  }
  windows_ = windows_of(policy, head_ + 1);
  window_weights_.assign(windows_.size(), -1);
  window_source_.assign(windows_.size(), -1);
  window_tied_source_.assign(windows_.size(), -1);
  add_state();
  add_scratch();
}

Program Compiler::run() {
  if (split() || uses_disk_) plan_moves();
  if (!program_.policy.update_chases_forward) {
    for (int u = 0; u <= head_; ++u) emit_update(u, -1);
  }
  const auto slots = static_cast<size_t>(program_.policy.weight_slots);
  for (size_t w = 0; w < windows_.size(); ++w) {
    for (size_t ahead = w; ahead < std::min(windows_.size(), w + slots); ++ahead) prepare_weights(ahead);
    read_weights(w + slots);
    come_back(static_cast<int>(w));
    emit_window(static_cast<int>(w));
    leave(static_cast<int>(w));
  }
  emit_accumulates(0);
  place_buffers(program_, state_bytes_);
  add_dependencies(program_);
  if (!program_.policy.update_chases_forward) wait_for_all_updates();
  return std::move(program_);
}

Lane Compiler::lane_of(int u) const { return u == kEmbedding ? Lane::kHost : Lane::kCompute; }

double Compiler::window_seconds(const Window& window) const {
  const int u = window.unit;
  const graph::RetainedSet none;
  const auto seconds = [&](const graph::Pass& pass) {
    return static_cast<double>(micros()) *
           (pass_seconds(unit(u), pass, program_.dims, *options_.machine) + options_.machine->launch_s);
  };
  switch (window.pass) {
    case Pass::kForward:
    case Pass::kBlockRecompute:
      return seconds(graph::forward_pass(unit(u), none, program_.dims));
    case Pass::kLoss:
      return seconds(graph::loss_pass(unit(u), program_.dims));
    case Pass::kRecompute:
    case Pass::kBackward:
      return seconds(graph::backward_pass(unit(u), program_.retained[static_cast<size_t>(u)], program_.dims,
                                          program_.policy.recompute_whole_unit));
  }
  return 0;
}

// Window by window, with the weights that come for the next one and the gradients that go of the one before.
std::vector<WindowTraffic> Compiler::traffic() const {
  std::vector<WindowTraffic> traffic(windows_.size());
  const auto bytes = [&](int u) {
    double elements = static_cast<double>(unit(u).block_elements);
    if (tied(u)) elements += static_cast<double>(unit(kEmbedding).block_elements);
    return 2 * elements;
  };
  std::map<std::pair<Pass, int>, double> known;  // layers are alike, and asked for often
  for (size_t w = 0; w < windows_.size(); ++w) {
    const auto [it, added] = known.try_emplace({windows_[w].pass, windows_[w].unit}, 0);
    if (added) it->second = window_seconds(windows_[w]);
    traffic[w].seconds = it->second;
    const auto next = w + 1;
    if (next < windows_.size() && weight_home(windows_[next].unit) != Tier::kDevice) {
      const int u = windows_[next].unit;
      const bool forward = windows_[next].pass == Pass::kForward || windows_[next].pass == Pass::kLoss;
      const bool kept = policy(u).keep_weights && !forward;
      if (!kept && !kernels_on_host(u)) traffic[w].h2d_bytes += bytes(u);
      // In its first window they come from the update.
      if (!kept && !forward && weight_home(u) == Tier::kDisk) traffic[w].disk_read_bytes += bytes(u);
    }
    const bool first_visit = windows_[w].pass == Pass::kForward || windows_[w].pass == Pass::kLoss;
    if (first_visit) {  // the update that chases it
      for (const PieceOnDisk& piece : on_disk_[static_cast<size_t>(windows_[w].unit)]) {
        const auto size = [&](int buffer) {
          return buffer < 0 ? 0 : static_cast<double>(program_.buffers[static_cast<size_t>(buffer)].bytes);
        };
        const double written = size(piece.hi) + size(piece.lo) + size(piece.optimizer);
        traffic[w].disk_read_bytes += written + size(piece.gradient);
        traffic[w].disk_write_bytes += written;
      }
    }
    const bool backward = windows_[w].pass == Pass::kBackward || windows_[w].pass == Pass::kLoss;
    if (backward && next < windows_.size() && weight_home(windows_[w].unit) != Tier::kDevice) {
      traffic[next].d2h_bytes += bytes(windows_[w].unit);
      if (gradient_home(windows_[w].unit) == Tier::kDisk) traffic[next].disk_write_bytes += bytes(windows_[w].unit);
    }
  }
  return traffic;
}

void Compiler::plan_moves() {
  std::vector<Offload> offloads;
  const auto away = [&](int u, bool retained, Tier home, int64_t bytes, int need) {
    if (bytes == 0 || need < 0 || (!split() && home != Tier::kDisk)) return;
    const int release = window_of(windows_, Pass::kForward, u);
    const bool on_device = split() && (retained || u != kEmbedding);
    offloads.push_back({static_cast<double>(bytes) * micros(), release, need, on_device, home == Tier::kDisk});
    away_.push_back(
        {.unit = u, .retained = retained, .need = need, .moves = {}, .host = {}, .on_disk = {}, .host_back = {}});
  };
  for (int u = 0; u < head_; ++u) {
    const auto i = static_cast<size_t>(u);
    const BoundaryPolicy& boundary = program_.policy.boundaries[i];
    const auto& value = unit(u).values[static_cast<size_t>(unit(u).output)];
    if (boundary.checkpoint && boundary.home != Tier::kDevice) {
      away(u, false, boundary.home, padded(graph::value_bytes(value, program_.dims)), return_window(windows_, u));
    }
    if (policy(u).retained_home != Tier::kDevice) {
      away(u, true, policy(u).retained_home, padded(program_.retained[i].bytes),
           window_of(windows_, Pass::kBackward, u));
    }
  }
  hw::Links links = options_.machine->links;
  if (!split()) {  // nothing but the disk is in the way
    constexpr double kNoLimit = 1e30;
    links.h2d = links.d2h = kNoLimit;
    links.joint = 0;
  }
  const auto moves = schedule_transfers(offloads, traffic(), window_of(windows_, Pass::kLoss, head_), links,
                                        program_.policy.transfer_slack);
  for (size_t i = 0; i < away_.size(); ++i) {
    away_[i].moves = moves[i];
    away_[i].host.assign(static_cast<size_t>(micros()), -1);
  }
  std::erase_if(away_, [&](const Away& a) { return split() ? !a.moves.leaves : !a.moves.disk; });
  back_order_.resize(away_.size());
  std::iota(back_order_.begin(), back_order_.end(), size_t{0});
  std::stable_sort(back_order_.begin(), back_order_.end(),
                   [&](size_t a, size_t b) { return away_[a].need < away_[b].need; });
}

void Compiler::leave(int w) {
  for (Away& a : away_) {
    const bool on_device = split() && (a.retained || a.unit != kEmbedding);
    const Purpose purpose = a.retained ? Purpose::kRetained : Purpose::kBoundaries;
    for (int m = 0; m < micros(); ++m) {
      const auto mi = static_cast<size_t>(m);
      if (on_device && a.moves.copied_out == w) {
        const int from = (a.retained ? retained_ : boundaries_)[static_cast<size_t>(a.unit)][mi];
        const Buffer source = program_.buffers[static_cast<size_t>(from)];
        a.host[mi] = add_buffer(purpose, Tier::kHost, a.unit, source.bytes, source.name + " on the host");
        transfer(Action::kCopyOut, Lane::kD2H, a.unit, m, from, a.host[mi]);
      }
      if (a.moves.disk && a.moves.disk_written == w) {
        if (!split()) a.host[mi] = (a.retained ? retained_ : boundaries_)[static_cast<size_t>(a.unit)][mi];
        const Buffer source = program_.buffers[static_cast<size_t>(a.host[mi])];
        a.on_disk.push_back(add_buffer(purpose, Tier::kDisk, a.unit, source.bytes, source.name + " and disk"));
        transfer(Action::kDiskWrite, Lane::kDiskWrite, a.unit, m, a.host[mi], a.on_disk.back());
      }
    }
  }
}

void Compiler::come_back(int w) {
  for (const size_t i : back_order_) {
    Away& a = away_[i];
    const Purpose purpose = a.retained ? Purpose::kRetained : Purpose::kBoundaries;
    for (int m = 0; m < micros(); ++m) {
      const auto mi = static_cast<size_t>(m);
      if (a.moves.disk && a.moves.disk_read == w) {
        const Buffer source = program_.buffers[static_cast<size_t>(a.on_disk[mi])];
        a.host_back.push_back(add_buffer(purpose, near_disk(), a.unit, source.bytes, source.name + ", read back"));
        transfer(Action::kDiskRead, Lane::kDiskRead, a.unit, m, a.on_disk[mi], a.host_back.back());
      }
    }
  }
  for (const size_t i : back_order_) {
    Away& a = away_[i];
    if (a.moves.fetched != w) continue;
    for (int m = 0; m < micros(); ++m) {
      const auto mi = static_cast<size_t>(m);
      const int from = a.moves.disk ? a.host_back[mi] : a.host[mi];
      const Buffer source = program_.buffers[static_cast<size_t>(from)];
      const Purpose purpose = source.purpose;
      int& current = (a.retained ? retained_ : boundaries_)[static_cast<size_t>(a.unit)][mi];
      if (!split()) {
        current = from;
        continue;
      }
      current = add_buffer(purpose, Tier::kDevice, a.unit, source.bytes, source.name + ", fetched");
      transfer(Action::kFetch, Lane::kH2D, a.unit, m, from, current);
    }
  }
}

void Compiler::emit_window(int w) {
  const Window& window = windows_[static_cast<size_t>(w)];
  weight_buffer_ = window_weights_[static_cast<size_t>(w)];
  const bool backward = window.pass == Pass::kBackward || window.pass == Pass::kLoss;
  if (backward) {
    emit_accumulates(static_cast<size_t>(program_.policy.gradient_buffers) - 1);
    open_gradient(window.unit);
  }
  for (int m = 0; m < micros(); ++m) {
    switch (window.pass) {
      case Pass::kForward:
      case Pass::kBlockRecompute:
        emit_forward(window, m);
        break;
      case Pass::kLoss:
        emit_loss(window.unit, m);
        break;
      case Pass::kRecompute:
      case Pass::kBackward:
        emit_backward(window.unit, m);
        break;
    }
  }
  if (window.pass == Pass::kLoss) hand_over_tied_gradient();
  if (backward) accumulates_.emplace_back(window.unit, gradient_buffer_);
}

int Compiler::new_boundary(int boundary, int m, Tier tier, std::string_view what) {
  const auto& value = unit(boundary).values[static_cast<size_t>(unit(boundary).output)];
  return add_buffer(Purpose::kBoundaries, tier, boundary, padded(graph::value_bytes(value, program_.dims)),
                    fmt::format("{} {} micro-batch {}", what, boundary, m));
}

Instruction Compiler::compute(Pass pass, int u, int m, int layout, int first, int last) {
  Instruction instruction{.action = Action::kCompute,
                          .lane = lane_of(u),
                          .unit = u,
                          .pass = pass,
                          .micro = m,
                          .layout = layout,
                          .first_step = first,
                          .last_step = last,
                          .uses = {},
                          .after = {}};
  const int scratch = lane_of(u) == Lane::kHost ? host_scratch_ : compute_scratch_;
  instruction.uses = {{scratch, Role::kScratch, true}};
  // The embedding's backward reads no weights.
  if (weight_buffer_ >= 0) instruction.uses.push_back({weight_buffer_, Role::kWeights, false});
  if (tied(u)) {
    const int embedding = tied_streamed_ >= 0 ? tied_streamed_ : weights_[kEmbedding];
    instruction.uses.push_back({embedding, Role::kTiedWeights, false});
  }
  return instruction;
}

// Layouts are made once a unit and kind; micro-batches share them.
int Compiler::layout_of(int u, Pass pass) {
  const auto [it, added] = layouts_.try_emplace({u, pass}, static_cast<int>(program_.layouts.size()));
  if (!added) return it->second;
  const graph::RetainedSet none;
  const graph::RetainedSet& retained = program_.retained[static_cast<size_t>(u)];
  switch (pass) {
    case Pass::kForward:
      program_.layouts.push_back(graph::forward_pass(unit(u), retained, program_.dims));
      break;
    case Pass::kBlockRecompute:
      program_.layouts.push_back(graph::forward_pass(unit(u), none, program_.dims));
      break;
    case Pass::kLoss:
      program_.layouts.push_back(graph::loss_pass(unit(u), program_.dims));
      break;
    case Pass::kRecompute:
    case Pass::kBackward:
      program_.layouts.push_back(
          graph::backward_pass(unit(u), retained, program_.dims, program_.policy.recompute_whole_unit));
      break;
  }
  return it->second;
}

int Compiler::workspace(int u, int layout, std::string_view what) {
  const int64_t bytes = program_.layouts[static_cast<size_t>(layout)].workspace_bytes;
  const Tier tier = split() && lane_of(u) == Lane::kHost ? Tier::kHost : Tier::kDevice;
  return add_buffer(Purpose::kWorkspace, tier, u, bytes, fmt::format("{} workspace of {}", what, unit(u).name));
}

void Compiler::emit_forward(const Window& window, int m) {
  const int u = window.unit;
  const auto i = static_cast<size_t>(u), mi = static_cast<size_t>(m);
  const bool again = window.pass == Pass::kBlockRecompute;
  const int layout = layout_of(u, window.pass);
  const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
  Instruction forward = compute(window.pass, u, m, layout, 0, steps);
  if (u > 0) forward.uses.push_back({boundaries_[i - 1][mi], Role::kInput, false});
  const bool from_host = split() && u == kEmbedding;
  const int output =
      new_boundary(u, m, from_host ? Tier::kHost : Tier::kDevice, again ? "recomputed boundary" : "boundary");
  forward.uses.push_back({output, Role::kOutput, true});
  // The output of a block's last unit, when it is run again, is a boundary that is there already.
  if (!again || !program_.policy.boundaries[i].checkpoint) boundaries_[i][mi] = output;
  if (!again && program_.retained[i].bytes > 0) {
    retained_[i][mi] =
        add_buffer(Purpose::kRetained, from_host ? Tier::kHost : Tier::kDevice, u, padded(program_.retained[i].bytes),
                   fmt::format("retained of {} micro-batch {}", unit(u).name, m));
    forward.uses.push_back({retained_[i][mi], Role::kRetained, true});
  }
  forward.uses.push_back({workspace(u, layout, "forward"), Role::kWorkspace, true});
  program_.instructions.push_back(std::move(forward));
  if (!from_host) return;
  for (Away& a : away_) {
    if (!a.retained && a.unit == kEmbedding) a.host[mi] = output;
  }
  boundaries_[i][mi] = new_boundary(u, m, Tier::kDevice, "boundary");
  transfer(Action::kFetch, Lane::kH2D, u, m, output, boundaries_[i][mi]);
}

void Compiler::emit_loss(int u, int m) {
  const auto mi = static_cast<size_t>(m);
  const int layout = layout_of(u, Pass::kLoss);
  const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
  Instruction loss = compute(Pass::kLoss, u, m, layout, 0, steps);
  const int boundary = boundaries_[static_cast<size_t>(u) - 1][mi];
  gradients_[mi] =
      add_buffer(Purpose::kBoundaryGradients, Tier::kDevice, u, program_.buffers[static_cast<size_t>(boundary)].bytes,
                 fmt::format("boundary gradient micro-batch {}", m));
  loss.uses.insert(loss.uses.end(), {{boundary, Role::kInput, false},
                                     {gradients_[mi], Role::kGradient, true},
                                     {gradient_buffer_, Role::kWeightGradient, true},
                                     {workspace(u, layout, "loss"), Role::kWorkspace, true}});
  if (tied(u)) loss.uses.push_back({tied_gradient_, Role::kTiedGradient, true});
  program_.instructions.push_back(std::move(loss));
}

void Compiler::bring_gradient_to_host(int m) {
  int& gradient = gradients_[static_cast<size_t>(m)];
  const int64_t bytes = program_.buffers[static_cast<size_t>(gradient)].bytes;
  const int host = add_buffer(Purpose::kBoundaryGradients, Tier::kHost, kEmbedding, bytes,
                              fmt::format("boundary gradient micro-batch {} on the host", m));
  transfer(Action::kCopyOut, Lane::kD2H, kEmbedding, m, gradient, host);
  gradient = host;
}

// Two instructions on one workspace: what is regenerated, then the backward that reads it.
void Compiler::emit_backward(int u, int m) {
  const auto i = static_cast<size_t>(u), mi = static_cast<size_t>(m);
  if (split() && u == kEmbedding) bring_gradient_to_host(m);
  const int layout = layout_of(u, Pass::kBackward);
  const int split_at = program_.layouts[static_cast<size_t>(layout)].recompute_steps;
  const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
  const int space = workspace(u, layout, "backward");
  const auto emit_part = [&](Pass pass, int first, int last) {
    Instruction instruction = compute(pass, u, m, layout, first, last);
    if (u > 0) instruction.uses.push_back({boundaries_[i - 1][mi], Role::kInput, false});
    if (retained_[i][mi] >= 0) {
      instruction.uses.push_back({retained_[i][mi], Role::kRetained, pass == Pass::kRecompute});
    }
    instruction.uses.push_back({space, Role::kWorkspace, true});
    if (pass == Pass::kBackward) {
      instruction.uses.push_back({gradients_[mi], Role::kGradient, true});
      instruction.uses.push_back({gradient_buffer_, Role::kWeightGradient, true});
    }
    program_.instructions.push_back(std::move(instruction));
  };
  if (split_at > 0) emit_part(Pass::kRecompute, 0, split_at);
  emit_part(Pass::kBackward, split_at, steps);
}

// Without chasing, nothing is computed before the last update is done.
void Compiler::wait_for_all_updates() {
  std::array<int, kLanes> last;  // updates by lane
  last.fill(-1);
  std::array<bool, kLanes> begun = {};
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    Instruction& instruction = program_.instructions[i];
    const auto lane = static_cast<size_t>(instruction.lane);
    if (instruction.action == Action::kUpdate) last[lane] = static_cast<int>(i);
    if (instruction.action != Action::kCompute || begun[lane]) continue;
    begun[lane] = true;
    for (size_t other = 0; other < last.size(); ++other) {
      if (other == lane || last[other] < 0) continue;
      auto& after = instruction.after;
      if (std::find(after.begin(), after.end(), last[other]) == after.end()) after.push_back(last[other]);
    }
  }
}

}  // namespace lazytrain::plan
