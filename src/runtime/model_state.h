// What outlives a step: split master weights, optimizer moments and stored gradients of every unit, wherever a program
// puts them: device, host or disk (plan::UnitState).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "model/checkpoint_reader.h"
#include "optim/adamw.h"
#include "plan/program.h"
#include "runtime/disk_bytes.h"
#include "runtime/tier_memory.h"

namespace lazytrain::runtime {

// An array of a parameter: bf16; int16; the moments as optim::MomentLayout has them (fp32: m and v, no scales; 8-bit:
// codes of a byte and fp32 scales); the type in which gradients are stored.
enum class StateArray : uint8_t { kHi, kLo, kMoment1, kMoment2, kScales, kGradient };

// Where the state lies in one memory: a piece a unit, on the host at plan::state_layout.
std::vector<plan::UnitState> state_of_one_memory(const plan::StateLayout& layout);

// Everything that reads state on disk goes through one channel and one staging memory: for one thread at a time then.
// State in memory may be read by many.
class ModelState {
 public:
  // All zero, in memory of its own. `compute` decides how gradients are stored (bf16 or fp32).
  ModelState(const graph::Graph& graph, DType compute, std::string_view optimizer_state = "fp32");
  // In the memory of a program, which outlives it; whatever is there stays. Of each unit the pieces follow one another
  // and cover its block; places are multiples of 4 bytes; on disk nothing but state shares the kDiskAlignment bytes
  // around a place while this writes. `formats` of the moments by unit; empty: all fp32. Throws std::logic_error where
  // pieces do not fit, or lie outside their tier.
  ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state, TierMemory& memory,
             std::vector<plan::UnitFormats> formats = {});

  // The weights from a model folder. Throws InputError naming the tensor that is missing or has another shape, with the
  // shape that config.json asks for; logs the tensors that the model does not know.
  void load_weights(const model::ModelFolder& folder, ThreadPool* pool);
  // Seeded random weights.
  void initialize(uint64_t seed, ThreadPool* pool);

  const graph::Graph& graph() const { return graph_; }
  DType gradient_dtype() const { return gradient_; }
  optim::MomentFormat format(int unit, int parameter) const;  // of the moments
  // Of an array: how many elements it has (the parameter's; scales: two a block, none for fp32) and the bytes of one.
  int64_t elements(int unit, int parameter, StateArray array) const;
  int64_t element_bytes(int unit, int parameter, StateArray array) const;
  bool in_memory() const { return disk_ == nullptr; }  // all of it, on device or host

  // The arrays in every home; a tied parameter's are the embedding's. Ranges outside them throw std::logic_error.
  // Elements from `first`, as many as the bytes make.
  void read(int unit, int parameter, StateArray array, int64_t first, std::span<std::byte> to) const;
  void write(int unit, int parameter, StateArray array, int64_t first, std::span<const std::byte> from);
  // Calls f with consecutive spans of the whole array, each valid during its call, in which f leaves this state alone:
  // as few as there are where it lies in memory, of at most DiskBytes::kPiece bytes from disk.
  void visit(int unit, int parameter, StateArray array, const std::function<void(std::span<const std::byte>)>& f) const;
  // Calls f(first, hi, lo) with both halves of consecutive elements: all at once where they lie in memory.
  using Halves = std::function<void(int64_t first, std::span<const bf16> hi, std::span<const int16_t> lo)>;
  void visit_weights(int unit, int parameter, const Halves& f) const;

  // The array where it is contiguous in memory, else null.
  std::byte* in_place(int unit, int parameter, StateArray array) const;
  bool in_place(StateArray array) const;  // of every parameter that has one

  // Of parameters in one piece of memory, with fp32 moments; throw std::logic_error for others.
  optim::AdamWArrays arrays(int unit, int parameter) const;
  std::byte* gradient(int unit, int parameter) const;
  // Of memory of its own: buffers marked `state` in a Program of one memory lie at their offsets from here.
  std::byte* base() const;
  int64_t bytes() const { return memory_.bytes(plan::Tier::kHost); }

 private:
  struct Segment {
    plan::Tier tier;
    int64_t offset;
    int64_t bytes;
  };
  using Fill = std::function<void(int64_t first, std::span<bf16> hi, std::span<int16_t> lo)>;

  struct Storage {
    size_t unit, index;
    const graph::Parameter& parameter;
  };
  // Elements [begin, end) of an array, one behind the other at `place`.
  struct Part {
    int64_t begin = 0, end = 0;
    plan::StatePlace place;
  };

  ModelState(const graph::Graph& graph, DType gradient, std::vector<plan::UnitState> state,
             std::vector<plan::UnitFormats> formats, std::unique_ptr<TierMemory> own, TierMemory* shared);
  Storage storage_of(int unit, int parameter) const;  // a tied parameter is the embedding's
  Part part_in(const Storage& storage, StateArray array, size_t piece) const;
  void lay_out_moments();
  bool on_own_device(plan::Tier tier) const;
  void check_places() const;
  // Calls f(segment) for the ranges of a tier in which elements [first, first + count) lie, in their order; what is
  // contiguous is one.
  template <typename F>
  void each_segment(int unit, int parameter, StateArray array, int64_t first, int64_t count, F f) const;
  std::byte* required_in_place(int unit, int parameter, StateArray array) const;
  // Sets all weights of a parameter: fill(first, hi, lo) is called for consecutive ranges, in place where that is
  // possible and then for all of them at once.
  void fill_weights(int unit, int parameter, const Fill& fill);

  const graph::Graph& graph_;
  DType gradient_;
  std::vector<plan::UnitState> state_;
  std::vector<plan::UnitFormats> formats_;
  std::vector<std::vector<plan::PieceMoments>> moments_;  // by unit, piece
  std::unique_ptr<TierMemory> own_;
  TierMemory& memory_;
  std::unique_ptr<DiskBytes> disk_;  // null: nothing is on disk
};

}  // namespace lazytrain::runtime
