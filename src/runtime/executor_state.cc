// What the executor does with state: weights on their way in, gradients on their way out, updates, transfers.
#include <algorithm>
#include <cstring>

#include "base/arith.h"
#include "runtime/executor.h"
#include "runtime/instruction_uses.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kGrain = 1 << 16;  // bytes a part of a copy at least

void merge(const std::byte* hi, const std::byte* lo, std::byte* out, int64_t begin, int64_t end) {
  const auto* high = reinterpret_cast<const bf16*>(hi);
  const auto* low = reinterpret_cast<const int16_t*>(lo);
  auto* to = reinterpret_cast<float*>(out);
  for (int64_t i = begin; i < end; ++i) to[i] = merge_master({high[i], low[i]});
}

}  // namespace

// At the lane's emulated rate, or all at once over the pool. `copy` gets multiples of thousands of bytes, so that no
// element is cut.
void Executor::paced(plan::Lane lane, int64_t bytes, const std::function<void(int64_t, int64_t)>& copy) {
  if (throttle_) return throttle_->transfer(lane, bytes, copy);
  pool_of(lane).parallel_for(bytes, kGrain, copy);
}

// The bf16 half of the weights, or both halves merged into fp32 (compute: fp32). A source on disk was read with its
// remainders behind the halves, both padded; in memory they stand the same way, without a gap.
void Executor::copy_in(const plan::Instruction& instruction) {
  const plan::Use& from = *use_of(instruction, plan::Role::kWeights);
  const std::byte* hi = address(from);
  std::byte* out = address(*use_of(instruction, plan::Role::kOutput));
  const int64_t elements = graph_.units[static_cast<size_t>(instruction.unit)].block_elements;
  if (program_.compute == DType::kBF16) {
    paced(instruction.lane, 2 * elements,
          [&](int64_t begin, int64_t end) { std::memcpy(out + begin, hi + begin, static_cast<size_t>(end - begin)); });
    return;
  }
  const std::byte* lo = hi + buffer(from).bytes / 2;
  paced(instruction.lane, 4 * elements, [&](int64_t begin, int64_t end) { merge(hi, lo, out, begin / 4, end / 4); });
}

// Between device and host, as it is; fp32 gradients that go to a bf16 store are rounded on the way.
void Executor::move(const plan::Instruction& instruction) {
  const plan::Use& source = *use_of(instruction, plan::Role::kSource);
  const plan::Use& target = *use_of(instruction, plan::Role::kTarget);
  const std::byte* from = address(source);
  std::byte* to = address(target);
  if (!rounds_gradient(program_, buffer(source), buffer(target))) {
    const int64_t bytes = std::min(buffer(source).bytes, buffer(target).bytes);
    paced(instruction.lane, bytes,
          [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin)); });
    return;
  }
  const auto* sum = reinterpret_cast<const float*>(from);
  auto* stored = reinterpret_cast<bf16*>(to);
  paced(instruction.lane, buffer(source).bytes / 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin / 2; i < end / 2; ++i) stored[i] = to_bf16(sum[i]);
  });
}

// Parts on disk stand one behind the other in memory.
void Executor::disk_transfer(const plan::Instruction& instruction) {
  const bool read = instruction.action == plan::Action::kDiskRead;
  std::byte* memory = address(*use_of(instruction, read ? plan::Role::kTarget : plan::Role::kSource));
  const auto transfer = [&](std::byte* at, int64_t offset, int64_t bytes) {
    const std::span<std::byte> span(at, static_cast<size_t>(bytes));
    if (read) {
      disk_read_->read(offset, span);
    } else {
      disk_write_->write(offset, span);
    }
  };
  for (const plan::Use& use : instruction.uses) {
    if (use.role != (read ? plan::Role::kSource : plan::Role::kTarget)) continue;
    const plan::Buffer& part = buffer(use);
    if (throttle_) {  // its pieces are multiples of kDiskAlignment, as the part is
      throttle_->transfer(instruction.lane, part.bytes, [&](int64_t begin, int64_t end) {
        transfer(memory + begin, part.offset + begin, end - begin);
      });
    } else {
      transfer(memory, part.offset, part.bytes);
    }
    memory += part.bytes;
  }
}

// Stores a unit's gradient for the update and takes its sum of squares on the way. What was copied out stands in the
// store already.
void Executor::accumulate(const plan::Instruction& instruction) {
  const auto u = static_cast<size_t>(instruction.unit);
  const graph::Unit& unit = graph_.units[u];
  const plan::Use* accumulator = use_of(instruction, plan::Role::kWeightGradient);
  const auto* sum = accumulator == nullptr ? nullptr : reinterpret_cast<const float*>(address(*accumulator));
  std::byte* store = address(*use_of(instruction, plan::Role::kGradientStore));
  ThreadPool* pool = &pool_of(instruction.lane);
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    if (parameter.tied) continue;
    const int64_t n = parameter.elements;
    if (program_.gradient == DType::kBF16) {
      auto* to = reinterpret_cast<bf16*>(store) + parameter.offset;
      sums_[u][p] = sum == nullptr ? optim::sum_of_squares(to, n, pool)
                                   : optim::round_to_bf16_and_sum(sum + parameter.offset, to, n, pool);
    } else {
      auto* to = reinterpret_cast<float*>(store) + parameter.offset;
      if (sum != nullptr) std::copy_n(sum + parameter.offset, n, to);
      sums_[u][p] = optim::sum_of_squares(to, n, pool);
    }
  }
}

// A piece of a unit's state: what of it lies on disk stands in the staged buffer, the rest where it lives. New weights
// go on to the window that reads them next.
void Executor::update(const plan::Instruction& instruction) {
  const auto u = static_cast<size_t>(instruction.unit), k = static_cast<size_t>(instruction.piece);
  const plan::StatePiece& piece = program_.state[u][k];
  const plan::Use* staged = use_of(instruction, plan::Role::kStaged);
  std::byte* next = staged == nullptr ? nullptr : address(*staged);
  std::array<std::byte*, 4> parts{};
  const std::array<const plan::StatePlace*, 4> places = {&piece.hi, &piece.lo, &piece.optimizer, &piece.gradient};
  const std::array<int64_t, 4> bytes = {2 * piece.elements, 2 * piece.elements, moments_[u][k].bytes,
                                        size_of(program_.gradient) * piece.elements};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (places[i]->tier != plan::Tier::kDisk) {
      parts[i] = memory_.at(places[i]->tier, places[i]->offset);
    } else {
      parts[i] = next;
      next += align_up(bytes[i], plan::kDiskAlignment);
    }
  }
  if (const PendingUpdate* own = update_of(instruction)) update_parameters(instruction, *own, piece, parts);
  const plan::Use* window = use_of(instruction, plan::Role::kOutput);
  if (window == nullptr) return;
  std::byte* out = address(*window) + 2 * piece.first;
  std::memcpy(out, parts[0], static_cast<size_t>(bytes[0]));
  if (program_.compute == DType::kF32) {
    std::memcpy(out + buffer(*window).bytes / 2, parts[1], static_cast<size_t>(bytes[1]));
  }
}

void Executor::update_parameters(const plan::Instruction& instruction, const PendingUpdate& update,
                                 const plan::StatePiece& piece, const std::array<std::byte*, 4>& parts) {
  const auto u = static_cast<size_t>(instruction.unit), k = static_cast<size_t>(instruction.piece);
  ThreadPool* pool = &pool_of(instruction.lane);
  for (const plan::ParameterMoments& part : moments_[u][k].parameters) {
    const graph::Parameter& parameter = graph_.units[u].params[static_cast<size_t>(part.parameter)];
    const auto step =
        optim::adamw_step(update.options, update.lr, update.number, update.gradient_scale, parameter.decays());
    const int64_t begin = parameter.offset + part.first - piece.first, n = part.layout.elements;
    auto* hi = reinterpret_cast<bf16*>(parts[0]) + begin;
    auto* lo = reinterpret_cast<int16_t*>(parts[1]) + begin;
    const optim::Moments moments = optim::moments_at(part.layout, parts[2]);
    if (program_.gradient == DType::kBF16) {
      optim::adamw_update(step, hi, lo, moments, reinterpret_cast<const bf16*>(parts[3]) + begin, n, pool);
    } else {
      optim::adamw_update(step, hi, lo, moments, reinterpret_cast<const float*>(parts[3]) + begin, n, pool);
    }
  }
}

}  // namespace lazytrain::runtime
