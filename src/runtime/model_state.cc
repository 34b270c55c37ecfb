#include "runtime/model_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "base/arith.h"
#include "model/init.h"
#include "model/parameter_tensors.h"
#include "model/tensor_convert.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;      // elements converted or drawn at a time
constexpr int64_t kReadPiece = int64_t{1} << 22;  // elements of a file read at a time

constexpr std::array<StateArray, 5> kArrays = {StateArray::kHi, StateArray::kLo, StateArray::kMoment1,
                                               StateArray::kMoment2, StateArray::kGradient};

const plan::StatePlace& place_of(const plan::StatePiece& piece, StateArray array) {
  switch (array) {
    case StateArray::kHi:
      return piece.hi;
    case StateArray::kLo:
      return piece.lo;
    case StateArray::kMoment1:
    case StateArray::kMoment2:
      return piece.optimizer;
    case StateArray::kGradient:
      return piece.gradient;
  }
  throw std::logic_error("no such array of the state");
}

// The second moments of a piece stand behind its first.
int64_t offset_of(const plan::StatePiece& piece, StateArray array) {
  const int64_t before = array == StateArray::kMoment2 ? piece.elements * size_of(DType::kF32) : 0;
  return place_of(piece, array).offset + before;
}

bool any_on_disk(const std::vector<plan::UnitState>& state) {
  for (const plan::UnitState& unit : state) {
    for (const plan::StatePiece& piece : unit) {
      for (const StateArray array : kArrays) {
        if (place_of(piece, array).tier == plan::Tier::kDisk) return true;
      }
    }
  }
  return false;
}

std::array<int64_t, 3> on_host(int64_t bytes) {
  std::array<int64_t, 3> tiers{};
  tiers[static_cast<size_t>(plan::Tier::kHost)] = bytes;
  return tiers;
}

// A tied parameter is the embedding's.
struct Storage {
  const graph::Parameter& parameter;
  size_t unit;
};
Storage storage_of(const graph::Graph& graph, int unit, int parameter) {
  const auto u = static_cast<size_t>(unit);
  const graph::Parameter& p = graph.units[u].params[static_cast<size_t>(parameter)];
  if (p.tied) return {graph.units[0].params[0], 0};
  return {p, u};
}

int64_t elements_in(int64_t bytes, int64_t element_bytes) {
  if (bytes % element_bytes != 0) {
    throw std::logic_error(fmt::format("{} bytes of state, expected a multiple of {}", bytes, element_bytes));
  }
  return bytes / element_bytes;
}

int64_t elements_of(const graph::Graph& graph, int unit, int parameter) {
  return storage_of(graph, unit, parameter).parameter.elements;
}

}  // namespace

std::vector<plan::UnitState> state_of_one_memory(const plan::StateLayout& layout) {
  std::vector<plan::UnitState> state;
  for (const plan::UnitStateLayout& unit : layout.units) {
    const auto at = [](int64_t offset) { return plan::StatePlace{plan::Tier::kHost, offset}; };
    const int64_t half = unit.elements * size_of(DType::kBF16);
    state.push_back({plan::StatePiece{.first = 0,
                                      .elements = unit.elements,
                                      .hi = at(unit.weights),
                                      .lo = at(unit.weights + half),
                                      .optimizer = at(unit.optimizer),
                                      .gradient = at(unit.gradients)}});
  }
  return state;
}

ModelState::ModelState(const graph::Graph& graph, DType compute)
    : ModelState(graph, compute, state_of_one_memory(plan::state_layout(graph, compute)),
                 std::make_unique<TierMemory>(on_host(plan::state_layout(graph, compute).bytes), nullptr), nullptr) {}

ModelState::ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state,
                       TierMemory& memory)
    : ModelState(graph, gradient, std::move(state), nullptr, &memory) {}

ModelState::ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state,
                       std::unique_ptr<TierMemory> own, TierMemory* shared)
    : graph_(graph),
      gradient_(gradient),
      state_(std::move(state)),
      own_(std::move(own)),
      memory_(own_ != nullptr ? *own_ : *shared) {
  check_places();
  if (any_on_disk(state_)) disk_ = std::make_unique<DiskBytes>(memory_.disk(DiskUser::kState));
}

void ModelState::check_places() const {
  if (state_.size() != graph_.units.size()) throw std::logic_error("the state is of another number of units");
  for (size_t u = 0; u < state_.size(); ++u) {
    const std::string& unit = graph_.units[u].name;
    int64_t next = 0;
    for (const plan::StatePiece& piece : state_[u]) {
      if (piece.first != next || piece.elements < 0) {
        throw std::logic_error(fmt::format("state of {}: a piece of {} elements begins at {}, expected at {}", unit,
                                           piece.elements, piece.first, next));
      }
      next += piece.elements;
      for (const StateArray array : kArrays) {
        const plan::StatePlace& place = place_of(piece, array);
        int64_t end = offset_of(piece, array) + piece.elements * element_bytes(array);
        if (place.tier == plan::Tier::kDisk) end = align_up(end, kDiskAlignment);
        if (place.offset < 0 || place.offset % size_of(DType::kF32) != 0 || end > memory_.bytes(place.tier)) {
          throw std::logic_error(fmt::format("state of {}: bytes {} to {} of the {}, expected multiples of 4 in {}",
                                             unit, place.offset, end, plan::name_of(place.tier),
                                             memory_.bytes(place.tier)));
        }
      }
    }
    if (next != graph_.units[u].block_elements) {
      throw std::logic_error(
          fmt::format("state of {}: {} elements, expected {}", unit, next, graph_.units[u].block_elements));
    }
  }
}

int64_t ModelState::element_bytes(StateArray array) const {
  switch (array) {
    case StateArray::kHi:
      return size_of(DType::kBF16);
    case StateArray::kLo:
      return size_of(DType::kI16);
    case StateArray::kMoment1:
    case StateArray::kMoment2:
      return size_of(DType::kF32);
    case StateArray::kGradient:
      return size_of(gradient_);
  }
  throw std::logic_error("no such array of the state");
}

template <typename F>
void ModelState::each_segment(int unit, int parameter, StateArray array, int64_t first, int64_t count, F f) const {
  const Storage storage = storage_of(graph_, unit, parameter);
  if (first < 0 || count < 0 || first > storage.parameter.elements - count) {
    throw std::logic_error(fmt::format("elements [{}, {} + {}) of '{}', which has {}", first, first, count,
                                       storage.parameter.name, storage.parameter.elements));
  }
  const int64_t size = element_bytes(array);
  const int64_t begin = storage.parameter.offset + first, end = begin + count;
  Segment open{};
  for (const plan::StatePiece& piece : state_[storage.unit]) {
    const int64_t from = std::max(begin, piece.first), to = std::min(end, piece.first + piece.elements);
    if (from >= to) continue;
    const Segment next{place_of(piece, array).tier, offset_of(piece, array) + size * (from - piece.first),
                       size * (to - from)};
    if (open.bytes > 0 && open.tier == next.tier && open.offset + open.bytes == next.offset) {
      open.bytes += next.bytes;
      continue;
    }
    if (open.bytes > 0) f(open);
    open = next;
  }
  if (open.bytes > 0) f(open);
}

void ModelState::read(int unit, int parameter, StateArray array, int64_t first, std::span<std::byte> to) const {
  std::span<std::byte> rest = to;
  const int64_t count = elements_in(std::ssize(to), element_bytes(array));
  each_segment(unit, parameter, array, first, count, [&](const Segment& segment) {
    const auto part = rest.first(static_cast<size_t>(segment.bytes));
    if (segment.tier == plan::Tier::kDisk) {
      disk_->read(segment.offset, part);
    } else {
      std::memcpy(part.data(), memory_.at(segment.tier, segment.offset), part.size());
    }
    rest = rest.subspan(part.size());
  });
}

void ModelState::write(int unit, int parameter, StateArray array, int64_t first, std::span<const std::byte> from) {
  std::span<const std::byte> rest = from;
  const int64_t count = elements_in(std::ssize(from), element_bytes(array));
  each_segment(unit, parameter, array, first, count, [&](const Segment& segment) {
    const auto part = rest.first(static_cast<size_t>(segment.bytes));
    if (segment.tier == plan::Tier::kDisk) {
      disk_->write(segment.offset, part);
    } else {
      std::memcpy(memory_.at(segment.tier, segment.offset), part.data(), part.size());
    }
    rest = rest.subspan(part.size());
  });
}

void ModelState::visit(int unit, int parameter, StateArray array,
                       const std::function<void(std::span<const std::byte>)>& f) const {
  each_segment(unit, parameter, array, 0, elements_of(graph_, unit, parameter), [&](const Segment& segment) {
    if (segment.tier == plan::Tier::kDisk) {
      disk_->visit(segment.offset, segment.bytes, f);
    } else {
      f({memory_.at(segment.tier, segment.offset), static_cast<size_t>(segment.bytes)});
    }
  });
}

void ModelState::visit_weights(int unit, int parameter, const Halves& f) const {
  const int64_t elements = elements_of(graph_, unit, parameter);
  const std::byte* hi = in_place(unit, parameter, StateArray::kHi);
  const std::byte* lo = in_place(unit, parameter, StateArray::kLo);
  if (hi != nullptr && lo != nullptr) {
    const auto n = static_cast<size_t>(elements);
    return f(0, {reinterpret_cast<const bf16*>(hi), n}, {reinterpret_cast<const int16_t*>(lo), n});
  }
  std::vector<bf16> some_hi(static_cast<size_t>(std::min(kPiece, elements)));
  std::vector<int16_t> some_lo(some_hi.size());
  for (int64_t first = 0; first < elements; first += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, elements - first));
    const auto piece_hi = std::span(some_hi).first(count);
    const auto piece_lo = std::span(some_lo).first(count);
    read(unit, parameter, StateArray::kHi, first, std::as_writable_bytes(piece_hi));
    read(unit, parameter, StateArray::kLo, first, std::as_writable_bytes(piece_lo));
    f(first, piece_hi, piece_lo);
  }
}

std::byte* ModelState::in_place(int unit, int parameter, StateArray array) const {
  std::byte* at = nullptr;
  int segments = 0;
  each_segment(unit, parameter, array, 0, elements_of(graph_, unit, parameter), [&](const Segment& segment) {
    if (segment.tier != plan::Tier::kDisk && segments == 0) at = memory_.at(segment.tier, segment.offset);
    ++segments;
  });
  return segments == 1 ? at : nullptr;
}

bool ModelState::in_place(StateArray array) const {
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(graph_.units[static_cast<size_t>(u)].params.size()); ++p) {
      if (in_place(u, p, array) == nullptr) return false;
    }
  }
  return true;
}

std::byte* ModelState::required_in_place(int unit, int parameter, StateArray array) const {
  std::byte* at = in_place(unit, parameter, array);
  if (at == nullptr) {
    throw std::logic_error(fmt::format("the state of '{}' does not lie in one piece of memory",
                                       storage_of(graph_, unit, parameter).parameter.name));
  }
  return at;
}

optim::AdamWArrays ModelState::arrays(int unit, int parameter) const {
  const auto at = [&](StateArray array) { return required_in_place(unit, parameter, array); };
  return {reinterpret_cast<bf16*>(at(StateArray::kHi)), reinterpret_cast<int16_t*>(at(StateArray::kLo)),
          reinterpret_cast<float*>(at(StateArray::kMoment1)), reinterpret_cast<float*>(at(StateArray::kMoment2))};
}

std::byte* ModelState::gradient(int unit, int parameter) const {
  return required_in_place(unit, parameter, StateArray::kGradient);
}

std::byte* ModelState::base() const {
  if (own_ == nullptr) throw std::logic_error("the state lies in the memory of a program");
  return own_->at(plan::Tier::kHost, 0);
}

void ModelState::fill_weights(int unit, int parameter, const Fill& fill) {
  const int64_t elements = elements_of(graph_, unit, parameter);
  std::byte* hi = in_place(unit, parameter, StateArray::kHi);
  std::byte* lo = in_place(unit, parameter, StateArray::kLo);
  if (hi != nullptr && lo != nullptr) {
    const auto n = static_cast<size_t>(elements);
    return fill(0, {reinterpret_cast<bf16*>(hi), n}, {reinterpret_cast<int16_t*>(lo), n});
  }
  std::vector<bf16> some_hi(static_cast<size_t>(std::min(kPiece, elements)));
  std::vector<int16_t> some_lo(some_hi.size());
  for (int64_t first = 0; first < elements; first += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, elements - first));
    const auto piece_hi = std::span(some_hi).first(count);
    const auto piece_lo = std::span(some_lo).first(count);
    fill(first, piece_hi, piece_lo);
    write(unit, parameter, StateArray::kHi, first, std::as_bytes(piece_hi));
    write(unit, parameter, StateArray::kLo, first, std::as_bytes(piece_lo));
  }
}

void ModelState::load_weights(const model::ModelFolder& folder, ThreadPool* pool) {
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      const model::TensorEntry& tensor = model::tensor_of(parameter, folder);
      // In pieces, so that no more of the file than one counts as memory of this process.
      fill_weights(u, p, [&](int64_t first, std::span<bf16> hi, std::span<int16_t> lo) {
        for (int64_t begin = 0; begin < std::ssize(hi); begin += kReadPiece) {
          const int64_t count = std::min(kReadPiece, std::ssize(hi) - begin);
          const auto range = [&](auto span) {
            return span.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
          };
          model::read_as_master(tensor, range(hi), range(lo), first + begin, pool);
          tensor.file->drop(tensor, first + begin, count);
        }
      });
      tensor.file->drop(tensor);
    }
  }
  folder.check_unchanged();
  model::warn_unread(graph_, folder);
}

void ModelState::initialize(uint64_t seed, ThreadPool* pool) {
  std::vector<float> drawn(static_cast<size_t>(kPiece));
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      fill_weights(u, p, [&](int64_t first, std::span<bf16> hi, std::span<int16_t> lo) {
        for (size_t begin = 0; begin < hi.size(); begin += drawn.size()) {
          const auto some = std::span(drawn).first(std::min(drawn.size(), hi.size() - begin));
          model::fill_initial(parameter, graph_.initializer_range, seed, some, first + static_cast<int64_t>(begin),
                              pool);
          for (size_t i = 0; i < some.size(); ++i) {
            const SplitMaster split = split_master(some[i]);
            hi[begin + i] = split.hi;
            lo[begin + i] = split.lo;
          }
        }
      });
    }
  }
}

}  // namespace lazytrain::runtime
