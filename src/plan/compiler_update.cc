// Updates, piece by piece where state lies on disk, and weights on their way to the kernels.
#include <fmt/format.h>

#include "base/arith.h"
#include "plan/compiler.h"

namespace lazytrain::plan {
namespace {

constexpr int kEmbedding = 0;

}  // namespace

// What of a piece lies on disk comes into one buffer: weights, remainders, optimizer state, gradient.
void Compiler::stage(int u, int piece) {
  if (u > head_ || updated_[static_cast<size_t>(u)] || staged_.contains({u, piece})) return;
  const PieceOnDisk& parts = on_disk_[static_cast<size_t>(u)][static_cast<size_t>(piece)];
  std::vector<Use> uses;
  int64_t bytes = 0;
  for (const int part : {parts.hi, parts.lo, parts.optimizer, parts.gradient}) {
    if (part < 0) continue;
    uses.push_back({part, Role::kSource, false});
    bytes += program_.buffers[static_cast<size_t>(part)].bytes;
  }
  const int to = add_buffer(Purpose::kStaged, near_disk(), u, bytes,
                            fmt::format("piece {} of the state of {}", piece, unit(u).name));
  uses.push_back({to, Role::kTarget, true});
  emit(Action::kDiskRead, Lane::kDiskRead, u, std::move(uses)).piece = piece;
  staged_[{u, piece}] = to;
}

// The optimizer step that belongs to the gradients of the step before, but for what backward did of it already: unit 0
// first, so that forward chases it. Where
// state lies on disk, the next piece is read while this one is updated, and the one before is written. Weights that
// are read from disk go on to `weights_for_window` (-1: none wants them) on the way.
void Compiler::emit_update(int u, int weights_for_window) {
  const auto i = static_cast<size_t>(u);
  if (updated_[i]) return;
  const auto pieces = static_cast<int>(on_disk_[i].size());
  for (int piece = 0; piece < pieces; ++piece) {
    stage(u, piece);
    if (piece + 1 < pieces) {
      stage(u, piece + 1);
    } else if (u < head_ && state_on_disk(u + 1)) {
      stage(u + 1, 0);
    }
    emit_piece_update(u, piece, weights_for_window);
    write_back(1);
  }
  for (size_t piece = 0; pieces == 0 && piece < program_.state[i].size(); ++piece) {
    if (!program_.state[i][piece].early) emit_piece_update(u, static_cast<int>(piece), -1);
  }
  updated_[i] = true;
  if (u == head_) write_back(0);
}

// What of the update belongs to this step's gradient, which has just been stored. Nothing reads the unit's weights any
// more before the next step: its backward is over, and with it what is run again of its block. (A tied head reads the
// embedding's, whose gradient is the last.)
void Compiler::emit_early_update(int u) {
  const UnitState& state = program_.state[static_cast<size_t>(u)];
  for (size_t piece = 0; piece < state.size(); ++piece) {
    if (state[piece].early) emit_piece_update(u, static_cast<int>(piece), -1);
  }
}

void Compiler::emit_piece_update(int u, int piece, int weights_for_window) {
  const auto i = static_cast<size_t>(u);
  const Lane lane = optimizer_home(u) == Tier::kDevice ? Lane::kCompute : Lane::kHost;
  std::vector<Use> uses;
  if (stored_gradients_[i] >= 0) uses.push_back({stored_gradients_[i], Role::kGradientStore, false});
  if (weights_[i] >= 0) uses.push_back({weights_[i], Role::kWeights, true});
  if (optimizer_[i] >= 0) uses.push_back({optimizer_[i], Role::kOptimizer, true});
  if (const auto it = staged_.find({u, piece}); it != staged_.end()) {
    uses.push_back({it->second, Role::kStaged, true});
    staged_to_write_.emplace_back(u, piece);
  }
  if (weights_for_window >= 0) uses.push_back({weights_for_window, Role::kOutput, true});
  emit(Action::kUpdate, lane, u, std::move(uses)).piece = piece;
}

// Of the updated pieces all but the last `keep`. A gradient does not change and is not written.
void Compiler::write_back(size_t keep) {
  while (staged_to_write_.size() > keep) {
    const auto [u, piece] = staged_to_write_.front();
    staged_to_write_.pop_front();
    const PieceOnDisk& parts = on_disk_[static_cast<size_t>(u)][static_cast<size_t>(piece)];
    std::vector<Use> uses = {{staged_[{u, piece}], Role::kSource, false}};
    for (const int part : {parts.hi, parts.lo, parts.optimizer}) {
      if (part >= 0) uses.push_back({part, Role::kTarget, true});
    }
    if (uses.size() > 1) emit(Action::kDiskWrite, Lane::kDiskWrite, u, std::move(uses)).piece = piece;
  }
}

// Memory for a unit's weights as they come from disk: the bf16 halves, and behind them the remainders when both are
// merged into fp32.
int Compiler::add_weight_copy(int u, const std::string& what) {
  const int64_t half = align_up(2 * unit(u).block_elements, kDiskAlignment);
  return add_buffer(Purpose::kStreamedWeights, near_disk(), u, merges() ? 2 * half : half, what);
}

int Compiler::read_copy(int u, const std::string& what) {
  // What is read is what was updated: nothing of the unit may still wait to be written.
  size_t others = 0;
  while (others < staged_to_write_.size() && staged_to_write_.rbegin()[static_cast<long>(others)].first != u) ++others;
  write_back(others);
  const int to = add_weight_copy(u, what);
  std::vector<Use> uses;
  for (const PieceOnDisk& piece : on_disk_[static_cast<size_t>(u)]) uses.push_back({piece.hi, Role::kSource, false});
  if (merges()) {
    for (const PieceOnDisk& piece : on_disk_[static_cast<size_t>(u)]) uses.push_back({piece.lo, Role::kSource, false});
  }
  uses.push_back({to, Role::kTarget, true});
  emit(Action::kDiskRead, Lane::kDiskRead, u, std::move(uses));
  return to;
}

// Weights on disk are read one window further ahead than they are copied in. Behind its own update a unit's weights
// are in memory already.
void Compiler::read_weights(size_t w) {
  if (w >= windows_.size()) return;
  const int u = windows_[w].unit;
  const bool reads = !(windows_[w].pass == Pass::kBackward && u == kEmbedding);
  if (weight_home(u) == Tier::kDisk && reads && window_source_[w] < 0 && updated_[static_cast<size_t>(u)] &&
      kept_weights_[static_cast<size_t>(u)] < 0) {
    window_source_[w] = read_copy(u, fmt::format("weights of {} read for window {}", unit(u).name, w));
  }
  if (tied(u) && weight_home(kEmbedding) == Tier::kDisk && window_tied_source_[w] < 0) {
    window_tied_source_[w] = read_copy(kEmbedding, fmt::format("weights of the embedding read for {}", unit(u).name));
  }
}

// Brings a window's weights to where its kernels read them: in place, copied in, or merged into an fp32 copy.
void Compiler::prepare_weights(size_t w) {
  const int u = windows_[w].unit;
  const auto i = static_cast<size_t>(u);
  if (window_weights_[w] >= 0) return;
  const bool reads_weights = !(windows_[w].pass == Pass::kBackward && u == kEmbedding);
  const bool from_disk = weight_home(u) == Tier::kDisk && reads_weights && kept_weights_[i] < 0;
  if (from_disk && !updated_[i]) {
    window_source_[w] = add_weight_copy(u, fmt::format("updated weights of {}", unit(u).name));
    emit_update(u, window_source_[w]);
  } else {
    emit_update(u, -1);
  }
  if (from_disk || tied(u)) read_weights(w);
  const int source = from_disk ? window_source_[w] : weights_[i];
  // The embedding's own kernels run on the host; a tied head reads its matrix on the device.
  const bool in_place = !merges() && (!split() || u == kEmbedding || weight_home(u) == Tier::kDevice);
  if (!reads_weights) return;
  if (kept_weights_[i] >= 0) {
    window_weights_[w] = kept_weights_[i];
  } else {
    window_weights_[w] = in_place ? source : copy_in(u, source, kernels_on_host(u) ? Tier::kHost : Tier::kDevice);
    const bool streamed = !in_place || from_disk;
    if (streamed && policy(u).keep_weights && windows_[w].pass == Pass::kForward) kept_weights_[i] = window_weights_[w];
  }
  if (!tied(u)) return;
  const int matrix = window_tied_source_[w] >= 0 ? window_tied_source_[w] : weights_[kEmbedding];
  tied_streamed_ = merges() || split() ? copy_in(kEmbedding, matrix, Tier::kDevice) : matrix;
}

int Compiler::copy_in(int u, int from, Tier to) {
  const int64_t bytes = (merges() ? 4 : 2) * unit(u).block_elements;
  const int target = add_buffer(Purpose::kStreamedWeights, to, u, bytes,
                                fmt::format("{} weights of {}", merges() ? "fp32" : "streamed", unit(u).name));
  emit(Action::kCopyIn, to == Tier::kHost ? Lane::kHost : Lane::kH2D, u,
       {{from, Role::kWeights, false}, {target, Role::kOutput, true}});
  return target;
}

}  // namespace lazytrain::plan
