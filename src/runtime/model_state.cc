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

constexpr std::array<plan::StatePlace plan::StatePiece::*, 4> kPlaces = {
    &plan::StatePiece::hi, &plan::StatePiece::lo, &plan::StatePiece::optimizer, &plan::StatePiece::gradient};

bool of_moments(StateArray array) {
  return array == StateArray::kMoment1 || array == StateArray::kMoment2 || array == StateArray::kScales;
}

// The array of the moments, null where the format has none.
const optim::MomentArray* find_array(const optim::MomentLayout& layout, StateArray array) {
  const bool plain = layout.format.kind == optim::StateKind::kFp32;
  switch (array) {
    case StateArray::kMoment1:
      return &layout.array(plain ? "m" : "m8");
    case StateArray::kMoment2:
      return &layout.array(plain ? "v" : "v8");
    case StateArray::kScales:
      return plain ? nullptr : &layout.array("scales");
    default:
      throw std::logic_error("no such array of the moments");
  }
}

bool any_on_disk(const std::vector<plan::UnitState>& state) {
  for (const plan::UnitState& unit : state) {
    for (const plan::StatePiece& piece : unit) {
      for (const auto place : kPlaces) {
        if ((piece.*place).tier == plan::Tier::kDisk) return true;
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

int64_t elements_in(int64_t bytes, int64_t element_bytes) {
  if (bytes % element_bytes != 0) {
    throw std::logic_error(fmt::format("{} bytes of state, expected a multiple of {}", bytes, element_bytes));
  }
  return bytes / element_bytes;
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

ModelState::ModelState(const graph::Graph& graph, DType compute, std::string_view optimizer_state)
    : ModelState(
          graph, compute, state_of_one_memory(plan::state_layout(graph, compute, optimizer_state)),
          plan::moment_formats(graph, optimizer_state),
          std::make_unique<TierMemory>(on_host(plan::state_layout(graph, compute, optimizer_state).bytes), nullptr),
          nullptr) {}

ModelState::ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state,
                       TierMemory& memory, std::vector<plan::UnitFormats> formats)
    : ModelState(graph, gradient, std::move(state), std::move(formats), nullptr, &memory) {}

ModelState::ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state,
                       std::vector<plan::UnitFormats> formats, std::unique_ptr<TierMemory> own, TierMemory* shared)
    : graph_(graph),
      gradient_(gradient),
      state_(std::move(state)),
      formats_(formats.empty() ? plan::moment_formats(graph, "fp32") : std::move(formats)),
      own_(std::move(own)),
      memory_(own_ != nullptr ? *own_ : *shared) {
  lay_out_moments();
  check_places();
  if (any_on_disk(state_)) disk_ = std::make_unique<DiskBytes>(memory_.disk(DiskUser::kState));
}

void ModelState::lay_out_moments() {
  if (state_.size() != graph_.units.size() || formats_.size() != graph_.units.size()) {
    throw std::logic_error("the state is of another number of units");
  }
  for (size_t u = 0; u < state_.size(); ++u) {
    moments_.emplace_back();
    for (const plan::StatePiece& piece : state_[u]) {
      moments_.back().push_back(plan::moments_of_piece(graph_.units[u], formats_[u], piece.first, piece.elements));
    }
  }
}

void ModelState::check_places() const {
  for (size_t u = 0; u < state_.size(); ++u) {
    const std::string& unit = graph_.units[u].name;
    int64_t next = 0;
    for (size_t k = 0; k < state_[u].size(); ++k) {
      const plan::StatePiece& piece = state_[u][k];
      if (piece.first != next || piece.elements < 0) {
        throw std::logic_error(fmt::format("state of {}: a piece of {} elements begins at {}, expected at {}", unit,
                                           piece.elements, piece.first, next));
      }
      next += piece.elements;
      const std::array<int64_t, 4> bytes = {2 * piece.elements, 2 * piece.elements, moments_[u][k].bytes,
                                            size_of(gradient_) * piece.elements};
      for (size_t i = 0; i < kPlaces.size(); ++i) {
        const plan::StatePlace& place = piece.*kPlaces[i];
        int64_t end = place.offset + bytes[i];
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

ModelState::Storage ModelState::storage_of(int unit, int parameter) const {
  const auto u = static_cast<size_t>(unit), p = static_cast<size_t>(parameter);
  const graph::Parameter& own = graph_.units[u].params[p];
  if (own.tied) return {0, 0, graph_.units[0].params[0]};
  return {u, p, own};
}

optim::MomentFormat ModelState::format(int unit, int parameter) const {
  const Storage storage = storage_of(unit, parameter);
  return formats_[storage.unit][storage.index];
}

int64_t ModelState::elements(int unit, int parameter, StateArray array) const {
  const int64_t n = storage_of(unit, parameter).parameter.elements;
  if (array != StateArray::kScales) return n;
  const optim::MomentFormat moments = format(unit, parameter);
  return moments.kind == optim::StateKind::kFp32 ? 0 : 2 * div_ceil(n, moments.block);
}

int64_t ModelState::element_bytes(int unit, int parameter, StateArray array) const {
  switch (array) {
    case StateArray::kHi:
      return size_of(DType::kBF16);
    case StateArray::kLo:
      return size_of(DType::kI16);
    case StateArray::kMoment1:
    case StateArray::kMoment2:
      return format(unit, parameter).kind == optim::StateKind::kFp32 ? size_of(DType::kF32) : size_of(DType::kU8);
    case StateArray::kScales:
      return size_of(DType::kF32);
    case StateArray::kGradient:
      return size_of(gradient_);
  }
  throw std::logic_error("no such array of the state");
}

ModelState::Part ModelState::part_in(const Storage& storage, StateArray array, size_t piece) const {
  const plan::StatePiece& at = state_[storage.unit][piece];
  if (!of_moments(array)) {
    plan::StatePlace place = array == StateArray::kHi ? at.hi : array == StateArray::kLo ? at.lo : at.gradient;
    const int64_t begin = std::max<int64_t>(0, at.first - storage.parameter.offset);
    const int64_t end = std::min(storage.parameter.elements, at.first + at.elements - storage.parameter.offset);
    const int64_t size = array == StateArray::kGradient ? size_of(gradient_) : size_of(DType::kBF16);
    place.offset += size * (storage.parameter.offset + begin - at.first);
    return {begin, end, place};
  }
  for (const plan::ParameterMoments& moments : moments_[storage.unit][piece].parameters) {
    if (static_cast<size_t>(moments.parameter) != storage.index) continue;
    const optim::MomentArray* found = find_array(moments.layout, array);
    if (found == nullptr) break;
    const int64_t begin =
        array == StateArray::kScales ? 2 * moments.first / moments.layout.format.block : moments.first;
    return {begin, begin + found->elements, {at.optimizer.tier, at.optimizer.offset + found->offset_bytes}};
  }
  return {};
}

template <typename F>
void ModelState::each_segment(int unit, int parameter, StateArray array, int64_t first, int64_t count, F f) const {
  const Storage storage = storage_of(unit, parameter);
  if (const int64_t all = elements(unit, parameter, array); first < 0 || count < 0 || first > all - count) {
    throw std::logic_error(
        fmt::format("elements [{}, {} + {}) of '{}', which has {}", first, first, count, storage.parameter.name, all));
  }
  const int64_t size = element_bytes(unit, parameter, array);
  Segment open{};
  for (size_t k = 0; k < state_[storage.unit].size(); ++k) {
    const Part part = part_in(storage, array, k);
    const int64_t from = std::max(first, part.begin), to = std::min(first + count, part.end);
    if (from >= to) continue;
    const Segment next{part.place.tier, part.place.offset + size * (from - part.begin), size * (to - from)};
    if (open.bytes > 0 && open.tier == next.tier && open.offset + open.bytes == next.offset) {
      open.bytes += next.bytes;
      continue;
    }
    if (open.bytes > 0) f(open);
    open = next;
  }
  if (open.bytes > 0) f(open);
}

bool ModelState::on_own_device(plan::Tier tier) const {
  return tier == plan::Tier::kDevice && memory_.own_device() != nullptr;
}

void ModelState::read(int unit, int parameter, StateArray array, int64_t first, std::span<std::byte> to) const {
  std::span<std::byte> rest = to;
  const int64_t count = elements_in(std::ssize(to), element_bytes(unit, parameter, array));
  each_segment(unit, parameter, array, first, count, [&](const Segment& segment) {
    const auto part = rest.first(static_cast<size_t>(segment.bytes));
    if (segment.tier == plan::Tier::kDisk) {
      disk_->read(segment.offset, part);
    } else if (on_own_device(segment.tier)) {
      memory_.own_device()->read(segment.offset, part);
    } else {
      std::memcpy(part.data(), memory_.at(segment.tier, segment.offset), part.size());
    }
    rest = rest.subspan(part.size());
  });
}

void ModelState::write(int unit, int parameter, StateArray array, int64_t first, std::span<const std::byte> from) {
  std::span<const std::byte> rest = from;
  const int64_t count = elements_in(std::ssize(from), element_bytes(unit, parameter, array));
  each_segment(unit, parameter, array, first, count, [&](const Segment& segment) {
    const auto part = rest.first(static_cast<size_t>(segment.bytes));
    if (segment.tier == plan::Tier::kDisk) {
      disk_->write(segment.offset, part);
    } else if (on_own_device(segment.tier)) {
      memory_.own_device()->write(segment.offset, part);
    } else {
      std::memcpy(memory_.at(segment.tier, segment.offset), part.data(), part.size());
    }
    rest = rest.subspan(part.size());
  });
}

void ModelState::visit(int unit, int parameter, StateArray array,
                       const std::function<void(std::span<const std::byte>)>& f) const {
  each_segment(unit, parameter, array, 0, elements(unit, parameter, array), [&](const Segment& segment) {
    if (segment.tier == plan::Tier::kDisk) {
      disk_->visit(segment.offset, segment.bytes, f);
    } else if (on_own_device(segment.tier)) {
      std::vector<std::byte> some(static_cast<size_t>(std::min(4 * kPiece, segment.bytes)));
      for (int64_t done = 0; done < segment.bytes; done += std::ssize(some)) {
        const auto part = std::span(some).first(static_cast<size_t>(std::min(std::ssize(some), segment.bytes - done)));
        memory_.own_device()->read(segment.offset + done, part);
        f(part);
      }
    } else {
      f({memory_.at(segment.tier, segment.offset), static_cast<size_t>(segment.bytes)});
    }
  });
}

void ModelState::visit_weights(int unit, int parameter, const Halves& f) const {
  const int64_t elements = storage_of(unit, parameter).parameter.elements;
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
  each_segment(unit, parameter, array, 0, elements(unit, parameter, array), [&](const Segment& segment) {
    const bool addressable = segment.tier != plan::Tier::kDisk && !on_own_device(segment.tier);
    if (addressable && segments == 0) at = memory_.at(segment.tier, segment.offset);
    ++segments;
  });
  return segments == 1 ? at : nullptr;
}

bool ModelState::in_place(StateArray array) const {
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(graph_.units[static_cast<size_t>(u)].params.size()); ++p) {
      if (elements(u, p, array) > 0 && in_place(u, p, array) == nullptr) return false;
    }
  }
  return true;
}

std::byte* ModelState::required_in_place(int unit, int parameter, StateArray array) const {
  std::byte* at = in_place(unit, parameter, array);
  if (at == nullptr) {
    throw std::logic_error(fmt::format("the state of '{}' does not lie in one piece of memory",
                                       storage_of(unit, parameter).parameter.name));
  }
  return at;
}

optim::AdamWArrays ModelState::arrays(int unit, int parameter) const {
  if (format(unit, parameter).kind != optim::StateKind::kFp32) {
    throw std::logic_error(fmt::format("the moments of '{}' are not fp32", storage_of(unit, parameter).parameter.name));
  }
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
  const int64_t elements = storage_of(unit, parameter).parameter.elements;
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
