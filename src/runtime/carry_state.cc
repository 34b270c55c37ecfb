#include "runtime/carry_state.h"

#include <algorithm>

#include "runtime/disk_bytes.h"

namespace lazytrain::runtime {
namespace {

using Bytes = std::array<int64_t, 3>;

constexpr std::array<StateArray, 5> kCarried = {StateArray::kHi, StateArray::kLo, StateArray::kMoment1,
                                                StateArray::kMoment2, StateArray::kScales};
constexpr int64_t kEdges = 2 * 4096;  // of a range given back in whole pages: what stays of it

// Calls f(place, bytes) for what is carried of a unit, and for its stored gradient with `gradient`.
template <typename F>
void each_place(const graph::Graph& graph, const plan::Program& program, size_t unit, bool gradient, const F& f) {
  for (const plan::StatePiece& piece : program.state[unit]) {
    const int64_t moments =
        plan::moments_of_piece(graph.units[unit], program.moments[unit], piece.first, piece.elements).bytes;
    if (gradient) {
      f(piece.gradient, size_of(program.gradient) * piece.elements);
      continue;
    }
    f(piece.hi, 2 * piece.elements);
    f(piece.lo, 2 * piece.elements);
    f(piece.optimizer, moments);
  }
}

std::vector<Bytes> carried_bytes(const graph::Graph& graph, const plan::Program& program) {
  std::vector<Bytes> units(graph.units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    each_place(graph, program, u, false, [&](const plan::StatePlace& place, int64_t bytes) {
      units[u][static_cast<size_t>(place.tier)] += bytes + kEdges;
    });
  }
  return units;
}

void release(TierMemory& memory, const plan::StatePlace& place, int64_t bytes) {
  if (place.tier != plan::Tier::kDisk) memory.release(place.tier, place.offset, place.offset + bytes);
}

// Of memory, all that is no state, and stored gradients: nothing of it is read again.
void release_scratch(const graph::Graph& graph, const CarriedFrom& from) {
  Bytes end{};
  for (const plan::Buffer& buffer : from.program.buffers) {
    int64_t& last = end[static_cast<size_t>(buffer.tier)];
    if (buffer.state) last = std::max(last, buffer.offset + buffer.bytes);
  }
  for (const plan::Tier tier : {plan::Tier::kDevice, plan::Tier::kHost}) {
    from.memory.release(tier, end[static_cast<size_t>(tier)], from.memory.bytes(tier));
  }
  for (size_t u = 0; u < graph.units.size(); ++u) {
    each_place(graph, from.program, u, true,
               [&](const auto& place, int64_t bytes) { release(from.memory, place, bytes); });
  }
}

}  // namespace

std::array<int64_t, 3> carry_bytes(const graph::Graph& graph, const plan::Program& from, const plan::Program& to) {
  const std::vector<Bytes> before = carried_bytes(graph, from), after = carried_bytes(graph, to);
  Bytes now{}, most{};
  for (const Bytes& unit : before) {
    for (size_t t = 0; t < now.size(); ++t) now[t] += unit[t];
  }
  for (size_t u = 0; u < before.size(); ++u) {
    for (size_t t = 0; t < now.size(); ++t) {
      now[t] += after[u][t];
      most[t] = std::max(most[t], now[t]);
      now[t] -= before[u][t];
    }
  }
  const auto disk = static_cast<size_t>(plan::Tier::kDisk);
  most[disk] = from.tier_bytes[disk] + to.tier_bytes[disk];
  // Each state on disk is read and written through a staging memory of its own.
  for (const plan::Program* program : {&from, &to}) {
    if (program->tier_bytes[disk] > 0) most[static_cast<size_t>(plan::Tier::kHost)] += DiskBytes::kPiece;
  }
  return most;
}

void carry_state(const CarriedFrom& from, ModelState& to) {
  const graph::Graph& graph = from.state.graph();
  from.memory.unregister_from_disk();  // registered pages stay with the process
  release_scratch(graph, from);
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const std::vector<graph::Parameter>& params = graph.units[u].params;
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].tied) continue;
      const auto unit = static_cast<int>(u), parameter = static_cast<int>(p);
      for (const StateArray array : kCarried) {
        const int64_t size = from.state.element_bytes(unit, parameter, array);
        int64_t first = 0;
        from.state.visit(unit, parameter, array, [&](std::span<const std::byte> bytes) {
          to.write(unit, parameter, array, first, bytes);
          first += std::ssize(bytes) / size;
        });
      }
    }
    each_place(graph, from.program, u, false,
               [&](const auto& place, int64_t bytes) { release(from.memory, place, bytes); });
  }
}

}  // namespace lazytrain::runtime
