#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/arith.h"
#include "base/error.h"
#include "plan/compiler.h"
#include "plan/moments.h"
#include "plan/placement.h"

namespace lazytrain::plan {
namespace {

constexpr int kEmbedding = 0;

constexpr int64_t kElementMultiple =
    kDiskAlignment / 2;  // of a piece: 2 bytes each fill what a disk transfer is made of

}  // namespace

int64_t piece_elements(int64_t elements, int64_t about) {
  const int64_t pieces = std::clamp<int64_t>(div_ceil(elements, about), 1, kMaxPieces);
  return align_up(div_ceil(elements, pieces), kElementMultiple);
}

std::vector<int64_t> state_cuts(const graph::Unit& unit, const UnitFormats& formats, int64_t about) {
  std::vector<int64_t> cuts = {0};
  const int64_t step = piece_elements(unit.block_elements, about);
  for (int64_t at = step; at < unit.block_elements; at += kElementMultiple) {
    if (at < cuts.back() + step || !may_cut(unit, formats, at)) continue;
    cuts.push_back(at);
  }
  cuts.push_back(unit.block_elements);
  return cuts;
}

// The embedding is gathered and scattered by rows on the host, so its state lives there.
Tier Compiler::weight_home(int u) const {
  const Tier home = policy(u).weight_home;
  if (home == Tier::kDisk) return home;
  return !split() || u == kEmbedding ? Tier::kHost : home;
}
Tier Compiler::optimizer_home(int u) const {
  const Tier home = policy(u).optimizer_home;
  if (home == Tier::kDisk) return home;
  return !split() || u == kEmbedding ? Tier::kHost : home;
}
Tier Compiler::gradient_home(int u) const {
  if (weight_home(u) == Tier::kDevice) return Tier::kDevice;
  return policy(u).gradient_home == Tier::kDisk ? Tier::kDisk : Tier::kHost;
}

bool Compiler::state_on_disk(int u) const {
  return weight_home(u) == Tier::kDisk || optimizer_home(u) == Tier::kDisk || gradient_home(u) == Tier::kDisk;
}

int64_t Compiler::padded(int64_t bytes) const { return uses_disk_ ? align_up(bytes, kDiskAlignment) : bytes; }

void Compiler::check_homes() const {
  const std::string& name = program_.policy.name;
  const bool disk = options_.machine != nullptr && options_.machine->disk_bytes > 0;
  const auto refuse_disk = [&](Tier tier, std::string_view what, size_t at) {
    if (tier == Tier::kDisk && !disk) {
      throw UsageError("plan '{}' puts {} {} on disk; this machine has none for it ({})", name, what, at,
                       split() ? "its profile has no disk_bytes" : "set disk.path to a folder for it");
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
    refuse_disk(policy(u).gradient_home, "gradients of unit", at);
    if (split() && (weight_home(u) == Tier::kDevice) != (optimizer_home(u) == Tier::kDevice)) {
      throw UsageError(
          "plan '{}': unit {} ({}) has weights on the {} and optimizer state on the {}: both on the device, or neither",
          name, u, unit(u).name, name_of(weight_home(u)), name_of(optimizer_home(u)));
    }
  }
}

void Compiler::add_state() {
  program_.gradient = options_.compute;
  program_.moments = moment_formats(graph_, program_.policy.optimizer_state);
  for (const BoundaryPolicy& boundary : program_.policy.boundaries) {
    uses_disk_ = uses_disk_ || boundary.home == Tier::kDisk;
  }
  for (int u = 0; u <= head_; ++u) {
    uses_disk_ = uses_disk_ || state_on_disk(u) || policy(u).retained_home == Tier::kDisk;
    add_unit_state(u);
  }
  if (program_.policy.update_in_backward) check_early_updates();
}

void Compiler::check_early_updates() const {
  for (const UnitState& state : program_.state) {
    if (std::any_of(state.begin(), state.end(), [](const StatePiece& piece) { return piece.early; })) return;
  }
  throw UsageError(
      "plan '{}' has update_in_backward, and no unit that it could be done for: state on disk waits for the next "
      "forward, and so does an early_update of 0. Leave the key out, or give a unit its state in memory",
      program_.policy.name);
}

// Of a unit's block, from its begin, what backward updates: memory's cache lines whole, and no block of 8-bit moments
// cut.
int64_t Compiler::early_elements(int u) const {
  constexpr int64_t kMultiple = 64, kMostTries = 1 << 16;
  const int64_t elements = unit(u).block_elements;
  const double part = policy(u).early_update;
  if (!program_.policy.update_in_backward || state_on_disk(u)) return 0;
  if (part >= 1) return elements;
  int64_t at = static_cast<int64_t>(part * static_cast<double>(elements)) / kMultiple * kMultiple;
  for (int64_t tries = 0; at > 0 && tries < kMostTries; ++tries, at -= kMultiple) {
    if (may_cut(unit(u), program_.moments[static_cast<size_t>(u)], at)) return at;
  }
  return 0;
}

std::vector<int64_t> Compiler::cuts_of(int u) const {
  if (state_on_disk(u)) {
    return state_cuts(unit(u), program_.moments[static_cast<size_t>(u)], options_.piece_elements);
  }
  const int64_t end = unit(u).block_elements, early = early_elements(u);
  return early > 0 && early < end ? std::vector<int64_t>{0, early, end} : std::vector<int64_t>{0, end};
}

// Weights, optimizer state and gradients one after the other (in one memory: as state_layout), in memory each as one
// buffer, on disk piece by piece.
void Compiler::add_unit_state(int u) {
  const int64_t elements = unit(u).block_elements, width = size_of(program_.gradient);
  const auto in_memory = [&](Purpose purpose, Tier tier, int64_t bytes) {
    if (tier == Tier::kDisk) return -1;
    return add_state_buffer(purpose, tier, u, bytes, fmt::format("{} of {}", name_of(purpose), unit(u).name));
  };
  const UnitFormats& formats = program_.moments[static_cast<size_t>(u)];
  const std::vector<int64_t> cuts = cuts_of(u);
  const int64_t early = early_elements(u);
  std::vector<int64_t> moments;  // bytes by piece
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    moments.push_back(moments_of_piece(unit(u), formats, cuts[i], cuts[i + 1] - cuts[i]).bytes);
  }
  const int64_t all_moments = std::accumulate(moments.begin(), moments.end(), int64_t{0});
  const int weights = in_memory(Purpose::kWeights, weight_home(u), 4 * elements);
  const int optimizer = in_memory(Purpose::kOptimizer, optimizer_home(u), all_moments);  // piece by piece too
  const int gradients = in_memory(Purpose::kGradients, gradient_home(u), width * elements);
  weights_.push_back(weights);
  optimizer_.push_back(optimizer);
  stored_gradients_.push_back(gradients);

  const auto place = [&](int buffer, int64_t bytes) {
    const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
    return StatePlace{b.tier, b.offset + bytes};
  };
  UnitState state;
  std::vector<PieceOnDisk> pieces;
  int64_t moments_before = 0;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t first = cuts[i];
    StatePiece piece{
        .first = first, .elements = cuts[i + 1] - first, .hi = {}, .lo = {}, .optimizer = {}, .gradient = {}};
    PieceOnDisk on_disk;
    const auto part = [&](Purpose purpose, std::string_view what, int64_t bytes) {
      return add_state_buffer(purpose, Tier::kDisk, u, align_up(bytes, kDiskAlignment),
                              fmt::format("{} of {}, piece {}", what, unit(u).name, state.size()));
    };
    piece.early = cuts[i + 1] <= early;
    if (weights < 0) {
      on_disk.hi = part(Purpose::kWeights, "weights", 2 * piece.elements);
      on_disk.lo = part(Purpose::kWeights, "remainders", 2 * piece.elements);
    }
    if (optimizer < 0) on_disk.optimizer = part(Purpose::kOptimizer, "optimizer state", moments[i]);
    if (gradients < 0) on_disk.gradient = part(Purpose::kGradients, "gradients", width * piece.elements);
    piece.hi = weights < 0 ? place(on_disk.hi, 0) : place(weights, 2 * first);
    piece.lo = weights < 0 ? place(on_disk.lo, 0) : place(weights, 2 * (elements + first));
    piece.optimizer = optimizer < 0 ? place(on_disk.optimizer, 0) : place(optimizer, moments_before);
    moments_before += moments[i];
    piece.gradient = gradients < 0 ? place(on_disk.gradient, 0) : place(gradients, width * first);
    state.push_back(piece);
    pieces.push_back(on_disk);
  }
  if (!state_on_disk(u)) pieces.clear();
  on_disk_.push_back(std::move(pieces));
  program_.state.push_back(std::move(state));
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

int Compiler::add_state_buffer(Purpose purpose, Tier tier, int u, int64_t bytes, const std::string& name) {
  const int id = add_buffer(purpose, tier, u, bytes, name);
  Buffer& buffer = program_.buffers.back();
  int64_t& taken = state_bytes_[static_cast<size_t>(tier)];
  buffer.state = true;
  buffer.offset = taken;
  taken += align_up(bytes, kDiskAlignment);
  return id;
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
    int store = stored_gradients_[static_cast<size_t>(u)];
    const bool to_disk = store < 0;
    if (to_disk) {
      store =
          add_buffer(Purpose::kGradients, near_disk(), u, padded(size_of(program_.gradient) * unit(u).block_elements),
                     fmt::format("gradients of {} on their way to disk", unit(u).name));
    }
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
    emit_early_update(u);
    if (!to_disk) continue;
    std::vector<Use> uses = {{store, Role::kSource, false}};
    for (const PieceOnDisk& piece : on_disk_[static_cast<size_t>(u)]) {
      uses.push_back({piece.gradient, Role::kTarget, true});
    }
    emit(Action::kDiskWrite, Lane::kDiskWrite, u, std::move(uses));
  }
}

}  // namespace lazytrain::plan
