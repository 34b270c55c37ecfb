#include <fmt/format.h>

#include <algorithm>

#include "base/arith.h"
#include "base/error.h"
#include "optim/state_layout.h"
#include "plan/compiler.h"
#include "plan/placement.h"

namespace lazytrain::plan {
namespace {

constexpr int kEmbedding = 0;

}  // namespace

// The embedding is gathered and scattered by rows on the host, so its state lives there.
Tier Compiler::weight_home(int u) const {
  const Tier home = policy(u).weight_home;
  return !split() || (u == kEmbedding && home == Tier::kDevice) ? Tier::kHost : home;
}
Tier Compiler::optimizer_home(int u) const {
  const Tier home = policy(u).optimizer_home;
  return !split() || (u == kEmbedding && home == Tier::kDevice) ? Tier::kHost : home;
}

bool Compiler::streams(int u) const {
  return merges() || (split() && u != kEmbedding && weight_home(u) != Tier::kDevice);
}

void Compiler::check_homes() const {
  const std::string& name = program_.policy.name;
  if (!split() && program_.policy.optimizer_state != "fp32") {
    throw UsageError("plan '{}': optimizer state '{}' is not what this machine's executor keeps; fp32 is", name,
                     program_.policy.optimizer_state);
  }
  const bool disk = split() && options_.machine->disk_bytes > 0;
  const auto refuse_disk = [&](Tier tier, std::string_view what, size_t at) {
    if (tier == Tier::kDisk && !disk) {
      throw UsageError("plan '{}' puts {} {} on disk; this machine's {}", name, what, at,
                       split() ? "profile has no disk (disk_bytes)" : "executor has device and host memory only");
    }
  };
  for (size_t b = 0; b < program_.policy.boundaries.size(); ++b) {
    refuse_disk(program_.policy.boundaries[b].home, "boundary", b);
  }
  for (int u = 0; u <= head_; ++u) {
    const auto at = static_cast<size_t>(u);
    refuse_disk(policy(u).retained_home, "the retained set of unit", at);
    refuse_disk(policy(u).weight_home, "weights of unit", at);
    refuse_disk(policy(u).optimizer_home, "optimizer state of unit", at);
    if (split() && (weight_home(u) == Tier::kDevice) != (optimizer_home(u) == Tier::kDevice)) {
      throw UsageError(
          "plan '{}': unit {} ({}) has weights on the {} and optimizer state on the {}: both on the device, or neither",
          name, u, unit(u).name, name_of(weight_home(u)), name_of(optimizer_home(u)));
    }
    if (split() && u == kEmbedding && (weight_home(u) == Tier::kDisk)) {
      throw UsageError("plan '{}': the embedding's weights are on disk; its rows are gathered in host memory", name);
    }
  }
}

void Compiler::add_state() {
  const StateLayout one = state_layout(graph_, options_.compute);
  const int64_t weight_bytes = 4;  // both halves
  for (int u = 0; u <= head_; ++u) {
    const int64_t elements = unit(u).block_elements;
    const auto add = [&](Purpose purpose, Tier tier, int64_t bytes, int64_t offset_in_one) {
      const int id = add_buffer(purpose, tier, u, bytes, fmt::format("{} of {}", name_of(purpose), unit(u).name));
      Buffer& buffer = program_.buffers.back();
      int64_t& taken = state_bytes_[static_cast<size_t>(tier)];
      buffer.state = true;
      buffer.offset = split() ? taken : offset_in_one;
      taken += align_up(bytes, kStateAlignment);
      return id;
    };
    const UnitStateLayout& layout = one.units[static_cast<size_t>(u)];
    const int64_t state = optim::planned_state_bytes(program_.policy.optimizer_state, elements);
    weights_.push_back(add(Purpose::kWeights, weight_home(u), weight_bytes * elements, layout.weights));
    optimizer_.push_back(add(Purpose::kOptimizer, optimizer_home(u), state, layout.optimizer));
    const Tier gradients = weight_home(u) == Tier::kDevice ? Tier::kDevice : Tier::kHost;
    stored_gradients_.push_back(add(Purpose::kGradients, gradients, one.gradient_bytes * elements, layout.gradients));
  }
  if (!split()) state_bytes_[static_cast<size_t>(Tier::kHost)] = one.bytes;
}

void Compiler::add_scratch() {
  int64_t compute = 0, host = 0;
  for (int u = 0; u <= head_ && options_.scratch_bytes; ++u) {
    for (const graph::Op& op : unit(u).ops) {
      int64_t& bytes = lane_of(u) == Lane::kHost ? host : compute;
      bytes = std::max(bytes, options_.scratch_bytes(*op.kind, program_.dims));
    }
  }
  compute_scratch_ = add_buffer(Purpose::kScratch, Tier::kDevice, -1, compute, "kernel scratch of the compute lane");
  host_scratch_ =
      add_buffer(Purpose::kScratch, split() ? Tier::kHost : Tier::kDevice, -1, host, "kernel scratch of the host lane");
}

int Compiler::add_buffer(Purpose purpose, Tier tier, int u, int64_t bytes, const std::string& name) {
  program_.buffers.push_back({name, purpose, tier, false, u, bytes, 0});
  return static_cast<int>(program_.buffers.size()) - 1;
}

Instruction& Compiler::emit(Action action, Lane lane, int u, std::vector<Use> uses) {
  program_.instructions.push_back({.action = action, .lane = lane, .unit = u, .uses = std::move(uses), .after = {}});
  return program_.instructions.back();
}

void Compiler::transfer(Action action, Lane lane, int u, int micro, int from, int to) {
  emit(action, lane, u, {{from, Role::kSource, false}, {to, Role::kTarget, true}}).micro = micro;
}

void Compiler::stage_update(int u) {
  if (u > head_ || updated_[static_cast<size_t>(u)] || staged_.contains(u)) return;
  const auto i = static_cast<size_t>(u);
  Staged staged;
  const auto read = [&](int from, Purpose purpose) {
    const int to = add_buffer(purpose, Tier::kHost, u, program_.buffers[static_cast<size_t>(from)].bytes,
                              fmt::format("{} of {} read for its update", name_of(purpose), unit(u).name));
    transfer(Action::kDiskRead, Lane::kDiskRead, u, 0, from, to);
    return to;
  };
  if (weight_home(u) == Tier::kDisk) staged.weights = read(weights_[i], Purpose::kWeights);
  if (optimizer_home(u) == Tier::kDisk) staged.optimizer = read(optimizer_[i], Purpose::kOptimizer);
  staged_[u] = staged;
}

// The optimizer step that belongs to the gradients of the step before: unit 0 first, so that forward chases it. The
// next unit's state is read while this one is updated, and written while the next is.
void Compiler::emit_update(int u) {
  const auto i = static_cast<size_t>(u);
  if (updated_[i]) return;
  stage_update(u);
  updated_[i] = true;
  stage_update(u + 1);
  const Staged& staged = staged_[u];
  const int weights = staged.weights >= 0 ? staged.weights : weights_[i];
  const int optimizer = staged.optimizer >= 0 ? staged.optimizer : optimizer_[i];
  const Lane lane = optimizer_home(u) == Tier::kDevice ? Lane::kCompute : Lane::kHost;
  emit(Action::kUpdate, lane, u,
       {{stored_gradients_[i], Role::kGradientStore, false},
        {weights, Role::kWeights, true},
        {optimizer, Role::kOptimizer, true}});
  staged_to_write_.push_back(u);
  while (staged_to_write_.size() > (u == head_ ? 0u : 1u)) {
    const int done = staged_to_write_.front();
    staged_to_write_.pop_front();
    const auto d = static_cast<size_t>(done);
    const Staged& copies = staged_[done];
    if (copies.weights >= 0) transfer(Action::kDiskWrite, Lane::kDiskWrite, done, 0, copies.weights, weights_[d]);
    if (copies.optimizer >= 0) transfer(Action::kDiskWrite, Lane::kDiskWrite, done, 0, copies.optimizer, optimizer_[d]);
  }
}

// Weights on disk are read into host memory one window further ahead than they are copied in. Behind its own update a
// unit's weights are in host memory already.
void Compiler::read_weights(size_t w) {
  if (w >= windows_.size()) return;
  const int u = windows_[w].unit;
  if (weight_home(u) != Tier::kDisk || window_source_[w] >= 0 || !updated_[static_cast<size_t>(u)]) return;
  if (kept_weights_[static_cast<size_t>(u)] >= 0) return;
  const int64_t bytes = (merges() ? 4 : 2) * unit(u).block_elements;
  window_source_[w] = add_buffer(Purpose::kWeights, Tier::kHost, u, bytes,
                                 fmt::format("weights of {} read for window {}", unit(u).name, w));
  transfer(Action::kDiskRead, Lane::kDiskRead, u, 0, weights_[static_cast<size_t>(u)], window_source_[w]);
}

// Brings a window's weights to where its kernels read them: in place, copied in, or merged into an fp32 copy.
void Compiler::prepare_weights(size_t w) {
  const int u = windows_[w].unit;
  const auto i = static_cast<size_t>(u);
  if (window_weights_[w] >= 0) return;
  const bool first = !updated_[i];
  emit_update(u);
  const bool reads_weights = !(windows_[w].pass == Pass::kBackward && u == kEmbedding);
  if (!streams(u) || !reads_weights) {
    window_weights_[w] = weights_[i];
  } else if (kept_weights_[i] >= 0) {
    window_weights_[w] = kept_weights_[i];
  } else {
    int source = weights_[i];
    if (weight_home(u) == Tier::kDisk) {
      if (!first) read_weights(w);
      source = first ? staged_[u].weights : window_source_[w];
    }
    // The embedding's own kernels run on the host; a tied head reads its matrix on the device.
    window_weights_[w] = copy_in(u, source, split() && u == kEmbedding ? Tier::kHost : Tier::kDevice);
    if (policy(u).keep_weights && windows_[w].pass == Pass::kForward) kept_weights_[i] = window_weights_[w];
  }
  if (tied(u) && (merges() || split())) tied_streamed_ = copy_in(kEmbedding, weights_[kEmbedding], Tier::kDevice);
}

int Compiler::copy_in(int u, int from, Tier to) {
  const int64_t bytes = (merges() ? 4 : 2) * unit(u).block_elements;
  const int target = add_buffer(Purpose::kStreamedWeights, to, u, bytes,
                                fmt::format("{} weights of {}", merges() ? "fp32" : "streamed", unit(u).name));
  emit(Action::kCopyIn, to == Tier::kHost ? Lane::kHost : Lane::kH2D, u,
       {{from, Role::kWeights, false}, {target, Role::kOutput, true}});
  return target;
}

// The fp32 accumulator of a unit's gradients. A tied head adds to the embedding's, which lives to the end.
void Compiler::open_gradient(int u) {
  const auto make = [&](int of, Tier tier) {
    return add_buffer(Purpose::kGradientAccumulators, tier, of, 4 * unit(of).block_elements,
                      "fp32 gradients of " + unit(of).name);
  };
  const Tier own = split() && u == kEmbedding ? Tier::kHost : Tier::kDevice;
  gradient_buffer_ = u == kEmbedding && tied_gradient_ >= 0 ? tied_gradient_ : make(u, own);
  if (tied(u)) tied_gradient_ = make(kEmbedding, Tier::kDevice);
}

// A tied head's part of the embedding's gradient goes to the host in fp32: the rows are added there before it is
// rounded.
void Compiler::hand_over_tied_gradient() {
  if (!split() || tied_gradient_ < 0) return;
  const int host = add_buffer(Purpose::kGradientAccumulators, Tier::kHost, kEmbedding,
                              4 * unit(kEmbedding).block_elements, "fp32 gradients of embedding on the host");
  transfer(Action::kCopyOut, Lane::kD2H, kEmbedding, 0, tied_gradient_, host);
  tied_gradient_ = host;
}

// Leaves at most `keep` finished gradients on the device.
void Compiler::emit_accumulates(size_t keep) {
  while (accumulates_.size() > keep) {
    const auto [u, buffer] = accumulates_.front();
    accumulates_.pop_front();
    const int store = stored_gradients_[static_cast<size_t>(u)];
    const bool on_host = program_.buffers[static_cast<size_t>(buffer)].tier == Tier::kHost;
    if (!split() || on_host) {
      emit(Action::kAccumulate, Lane::kHost, u,
           {{buffer, Role::kWeightGradient, false}, {store, Role::kGradientStore, true}});
    } else if (weight_home(u) == Tier::kDevice) {
      emit(Action::kAccumulate, Lane::kCompute, u,
           {{buffer, Role::kWeightGradient, false}, {store, Role::kGradientStore, true}});
    } else {
      transfer(Action::kCopyOut, Lane::kD2H, u, 0, buffer, store);
      emit(Action::kAccumulate, Lane::kHost, u, {{store, Role::kGradientStore, true}});
    }
  }
}

}  // namespace lazytrain::plan
