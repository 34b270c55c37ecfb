// State cut and put at random, for tests that it is the same in every home.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/arith.h"
#include "base/rng.h"
#include "runtime/model_state.h"

namespace lazytrain::runtime::testing {

inline constexpr std::array<StateArray, 6> kAllArrays = {StateArray::kHi,      StateArray::kLo,
                                                         StateArray::kMoment1, StateArray::kMoment2,
                                                         StateArray::kScales,  StateArray::kGradient};

// One number after the other.
class Draws {
 public:
  explicit Draws(uint64_t seed) : rng_(seed, 77) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(bound))); }
  std::vector<std::byte> bytes(int64_t count) {
    std::vector<std::byte> drawn(static_cast<size_t>(count));
    for (std::byte& byte : drawn) byte = static_cast<std::byte>(below(256));
    return drawn;
  }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

struct Places {
  std::vector<plan::UnitState> state;
  std::vector<plan::UnitFormats> formats = {};
  std::array<int64_t, 3> bytes = {0, 0, 0};  // by tier
};

// Every unit's block cut into at most four pieces anywhere but in blocks of 8-bit moments, every part of a piece in one
// of `tiers`, at any multiple of 4 bytes, touching its neighbour or with a gap.
inline Places random_places(const graph::Graph& graph, DType gradient, const std::vector<plan::Tier>& tiers,
                            uint64_t seed, const std::string& optimizer_state = "fp32") {
  Draws draws(seed);
  Places places;
  places.formats = plan::moment_formats(graph, optimizer_state);
  const auto tier = [&] { return tiers[static_cast<size_t>(draws.below(std::ssize(tiers)))]; };
  const auto put = [&](plan::Tier where, int64_t bytes) {
    constexpr std::array<int64_t, 3> kAlignments = {4, 64, kDiskAlignment};
    int64_t& end = places.bytes[static_cast<size_t>(where)];
    const int64_t offset = align_up(end, kAlignments[static_cast<size_t>(draws.below(3))]);
    end = offset + bytes;
    return plan::StatePlace{where, offset};
  };
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const graph::Unit& unit = graph.units[u];
    std::vector<int64_t> cuts = {0, unit.block_elements};
    for (int64_t i = draws.below(4); i > 0; --i) {
      int64_t at = draws.below(unit.block_elements);
      while (!plan::may_cut(unit, places.formats[u], at)) --at;
      cuts.push_back(at);
    }
    std::sort(cuts.begin(), cuts.end());
    plan::UnitState state;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      state.emplace_back();
      state.back().first = cuts[i];
      state.back().elements = cuts[i + 1] - cuts[i];
    }
    const auto part = [&](plan::StatePlace plan::StatePiece::*where, const auto& bytes_of) {
      const bool together = draws.below(2) == 0;
      const plan::Tier one = tier();
      for (plan::StatePiece& piece : state) piece.*where = put(together ? one : tier(), bytes_of(piece));
    };
    const auto halves = [](const plan::StatePiece& piece) { return 2 * piece.elements; };
    part(&plan::StatePiece::hi, halves);
    part(&plan::StatePiece::lo, halves);
    part(&plan::StatePiece::optimizer, [&](const plan::StatePiece& piece) {
      return plan::moments_of_piece(unit, places.formats[u], piece.first, piece.elements).bytes;
    });
    part(&plan::StatePiece::gradient,
         [&](const plan::StatePiece& piece) { return size_of(gradient) * piece.elements; });
    places.state.push_back(std::move(state));
  }
  int64_t& disk = places.bytes[static_cast<size_t>(plan::Tier::kDisk)];
  disk = align_up(disk, kDiskAlignment);
  return places;
}

inline const std::vector<plan::Tier> kDiskOnly = {plan::Tier::kDisk};
inline const std::vector<plan::Tier> kAllTiers = {plan::Tier::kDevice, plan::Tier::kHost, plan::Tier::kDisk};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lazytrain_state_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A state with the memory that it lies in.
class PlacedState {
 public:
  PlacedState(const graph::Graph& graph, DType gradient, const Places& places)
      : options_{.folder = folder_.path()},
        memory_(places.bytes, &options_),
        state_(graph, gradient, places.state, memory_, places.formats) {}
  ModelState& operator*() { return state_; }
  ModelState* operator->() { return &state_; }

 private:
  TemporaryFolder folder_;
  DiskOptions options_;
  TierMemory memory_;
  ModelState state_;
};

inline std::vector<std::byte> array_bytes(const ModelState& state, int unit, int parameter, StateArray array) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(state.elements(unit, parameter, array) * state.element_bytes(unit, parameter, array)));
  state.read(unit, parameter, array, 0, bytes);
  return bytes;
}

inline void copy_state(const ModelState& from, ModelState& to) {
  for (size_t u = 0; u < from.graph().units.size(); ++u) {
    for (size_t p = 0; p < from.graph().units[u].params.size(); ++p) {
      for (const StateArray array : kAllArrays) {
        const int unit = static_cast<int>(u), parameter = static_cast<int>(p);
        to.write(unit, parameter, array, 0, array_bytes(from, unit, parameter, array));
      }
    }
  }
}

}  // namespace lazytrain::runtime::testing
