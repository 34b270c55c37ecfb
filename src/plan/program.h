// The Program: a flat list of instructions on lanes, with explicit dependencies and every byte placed. The simulator
// times it, the executor runs it, the report draws it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "graph/pass.h"
#include "hw/profile.h"
#include "plan/moments.h"
#include "plan/policy.h"
#include "plan/words.h"

namespace lazytrain::plan {

// A range of a tier. State buffers live across steps, those of one memory at the offsets of state_layout(); the others
// are placed by liveness behind them and share memory.
struct Buffer {
  std::string name;
  Purpose purpose = Purpose::kWorkspace;
  Tier tier = Tier::kDevice;
  bool state = false;
  int unit = 0;
  int64_t bytes = 0;
  int64_t offset = 0;
};

// Where a unit's state lies. State in memory is one piece, or two when only the first part of it is updated in
// backward; state on disk is cut into pieces that are read, updated and
// written one after the other, cut so that no block of 8-bit moments is in two. `hi` and `lo` hold 2 bytes an element;
// `optimizer` the piece's moments (moments_of_piece); `gradient` the stored gradient. A part is contiguous.
struct StatePlace {
  Tier tier = Tier::kHost;
  int64_t offset = 0;  // bytes from the begin of the tier
};
struct StatePiece {
  int64_t first = 0;  // element of the unit's block
  int64_t elements = 0;
  StatePlace hi, lo, optimizer, gradient;
  bool early = false;  // updated in the step that makes its gradient, behind it; else at the head of the next step
};
using UnitState = std::vector<StatePiece>;

// What a buffer is to the instruction that uses it.
enum class Role : uint8_t {
  kInput,
  kOutput,
  kGradient,
  kRetained,
  kWorkspace,
  kScratch,
  kWeights,
  kTiedWeights,
  kWeightGradient,
  kTiedGradient,
  kOptimizer,
  kGradientStore,
  kStaged,  // what lies on disk of a piece of state, in host memory for its update
  kSource,  // of a transfer
  kTarget
};

struct Use {
  int buffer = 0;
  Role role = Role::kWorkspace;
  bool write = false;  // may change it (and may read it)
};

struct Instruction {
  Action action = Action::kCompute;
  Lane lane = Lane::kCompute;
  int unit = 0;
  Pass pass = Pass::kForward;  // of compute
  int micro = 0;               // micro-batch, of compute
  int layout = -1;             // of compute: index into Program::layouts
  int first_step = 0;          // of compute: the steps of that layout to run
  int last_step = 0;
  std::vector<Use> uses;
  int piece = 0;           // of an update and its transfers: index into Program::state[unit]
  std::vector<int> after;  // instructions that must have ended, all earlier in the list
};

struct Program {
  Policy policy;
  graph::Dims dims;  // of one micro-batch, at its largest
  int micro_batches = 1;
  bool one_memory = true;  // device and host are the same memory: nothing moves between them
  DType compute = DType::kBF16;
  DType gradient = DType::kBF16;     // as stored
  std::vector<UnitFormats> moments;  // by unit: how the optimizer's are kept
  std::vector<UnitState> state;      // by unit
  std::vector<Buffer> buffers;
  std::vector<graph::Pass> layouts;
  std::vector<graph::RetainedSet> retained;  // by unit
  std::vector<Instruction> instructions;
  std::array<int64_t, 3> tier_bytes = {0, 0, 0};  // what each tier needs, state included
};

// State on disk is cut into pieces of about this many elements, some MB each, so that staging costs little memory and
// each transfer is still long; a unit has at most kMaxPieces. Three are in host memory at once: one is read, one
// updated, one written.
inline constexpr int64_t kPieceElements = int64_t{1} << 21;
inline constexpr int64_t kMaxPieces = 16;

// Disk transfers of several buffers go from or to consecutive bytes of one: a kDiskRead has one target, a kDiskWrite
// one source. What they move begins at multiples of this in its tier, and has a multiple of it as its bytes.
inline constexpr int64_t kDiskAlignment = 4096;

// Elements of each piece of a unit's state but the last, when a piece should have about `about`, where blocks of 8-bit
// moments do not forbid it.
int64_t piece_elements(int64_t elements, int64_t about);
// Where the pieces of a unit's block begin, multiples of 2048, and its end. A piece is longer where a cut would go
// through a block of 8-bit moments; where no such multiple is the start of a block, as in blocks of 4096 behind a
// parameter of 64 elements, to the end.
std::vector<int64_t> state_cuts(const graph::Unit& unit, const UnitFormats& formats, int64_t about);

// Bytes that a transfer moves (kCopyIn: the half or both halves of the weights; kCopyOut of gradients: rounded to the
// stored type); 0 for other actions.
int64_t transfer_bytes(const Program& program, const Instruction& instruction);

std::string label(const Program& program, const graph::Graph& graph, int instruction);  // "layer.3 backward 1"

// Where the state of each unit lies in its tier, for any policy: weights as two halves (hi then lo, 2 bytes each),
// optimizer state, gradients. Offsets and sizes in bytes.
struct UnitStateLayout {
  int64_t elements = 0;
  int64_t weights = 0;
  int64_t optimizer = 0;
  int64_t gradients = 0;
};
struct StateLayout {
  std::vector<UnitStateLayout> units;
  int64_t gradient_bytes = 2;  // an element
  int64_t bytes = 0;
};
StateLayout state_layout(const graph::Graph& graph, DType compute, std::string_view optimizer_state = "fp32");

struct CompileOptions {
  DType compute = DType::kBF16;
  // Compile for this machine. Null, or a profile with one_memory: device and host are one, weights are used in place
  // (under `compute: fp32` merged into streamed fp32 copies), homes `device` and `host` mean the same and there is no
  // disk. Otherwise everything is moved between tiers as the policy says, when the profile's links have time for it.
  // Outlives the call only.
  const hw::Profile* machine = nullptr;
  // Scratch bytes that the device's kernels of an op need; empty: none.
  std::function<int64_t(const graph::OpKind&, const graph::Dims&)> scratch_bytes;
  int64_t piece_elements = kPieceElements;  // of state on disk; tests make them small
};

// Throws as check_against when the policy does not belong to the graph, UsageError when it asks for what the machine
// has not (a disk) or for what no program can do (weights on the device with their optimizer state elsewhere, updates
// in backward of units that all wait for forward).
Program compile(const graph::Graph& graph, const Policy& policy, const CompileOptions& options);

// Proves that every value is produced before it is read and is the one that is meant, no two live buffers overlap,
// nothing lies outside its tier, every use is ordered, every lane can proceed. Returns the faults, none for a sound
// program.
std::vector<std::string> validate(const Program& program);

struct MemoryRow {
  Purpose purpose;
  Tier tier;
  int64_t bytes;  // state: all of it; otherwise what is alive at the device's peak
};
std::vector<MemoryRow> memory_table(const Program& program);

}  // namespace lazytrain::plan
