#include "plan/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lazytrain::plan {
namespace {

enum class What : uint8_t {
  kNothing,
  kOldWeights,    // of `unit`, before the update of this step
  kWeights,       // of `unit`
  kOldState,      // optimizer state of `unit`, before the update of this step
  kState,         // optimizer state of `unit`
  kNextWeights,   // of `unit`, their first `count` pieces updated with the gradient of this step
  kNextState,     // likewise, optimizer state
  kOldGradient,   // of `unit`, as the step before stored it
  kStored,        // gradient of `unit`, of this step
  kBoundary,      // behind `unit`, of micro-batch `count`
  kBoundaryGrad,  // of the boundary behind `unit`, of micro-batch `count`
  kRetained,      // of `unit`, of micro-batch `count`
  kRegenerated,   // a workspace that holds what backward of `unit` reads, of micro-batch `count`
  kGradientSum,   // of `unit`'s parameters, over `count` contributions
  kOldPart,       // of a piece of `unit`'s state on disk before its update: `count` is part_count()
  kPart,          // likewise, of this step
  kOldStaged,     // what is on disk of piece `count` of `unit`, read for its update
  kStaged,        // likewise, updated
  kSomeWeights    // of the first `count` pieces of `unit`
};
constexpr std::array<std::string_view, 19> kWhatNames = {"nothing",
                                                         "weights before their update",
                                                         "weights",
                                                         "optimizer state before its update",
                                                         "optimizer state",
                                                         "weights of the next step",
                                                         "optimizer state of the next step",
                                                         "the gradient of the step before",
                                                         "the stored gradient",
                                                         "boundary",
                                                         "boundary gradient",
                                                         "retained set",
                                                         "regenerated values",
                                                         "gradient sum",
                                                         "a part of the state on disk before its update",
                                                         "a part of the state on disk",
                                                         "staged state before its update",
                                                         "staged state",
                                                         "weights of the first pieces"};

// Of a piece of state on disk, in the order in which they are read and written together.
constexpr int kHi = 0, kLo = 1, kOptimizer = 2, kGradient = 3, kParts = 4;
int part_count(int piece, int part) { return piece * kParts + part; }

struct Content {
  What what = What::kNothing;
  int unit = 0;
  int count = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

std::string text(const Content& c) {
  if (c.what == What::kNothing) return "nothing";
  return fmt::format("{} of unit {} ({})", name_in(kWhatNames, c.what), c.unit, c.count);
}

class Follower {
 public:
  explicit Follower(const Program& program)
      : program_(program), contents_(program.buffers.size()), head_(static_cast<int>(program.policy.units.size()) - 1) {
    for (size_t u = 0; u < program.state.size(); ++u) {
      int64_t elements = 0;
      int early = 0;
      for (const StatePiece& piece : program.state[u]) {
        elements += piece.elements;
        early += piece.early ? 1 : 0;
      }
      early_.push_back(early);
      weight_bytes_[static_cast<int>(u)] = 4 * elements;
    }
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (!buffer.state || buffer.tier == Tier::kDisk) continue;
      if (buffer.purpose == Purpose::kWeights) contents_[b] = at_begin(buffer.unit, What::kOldWeights, What::kWeights);
      if (buffer.purpose == Purpose::kOptimizer) contents_[b] = at_begin(buffer.unit, What::kOldState, What::kState);
      if (buffer.purpose == Purpose::kGradients) contents_[b] = {What::kOldGradient, buffer.unit, 0};
    }
    for (const Instruction& i : program.instructions) {
      for (const Use& use : i.uses) tied_ = tied_ || use.role == Role::kTiedWeights;
    }
    find_parts();
  }

  std::vector<std::string> run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      at_ = static_cast<int>(i);
      instruction_ = &program_.instructions[i];
      switch (instruction_->action) {
        case Action::kUpdate:
          update();
          break;
        case Action::kCopyIn:
          copy_in();
          break;
        case Action::kAccumulate:
          accumulate();
          break;
        case Action::kCompute:
          compute();
          break;
        case Action::kCopyOut:
        case Action::kFetch:
          move();
          break;
        case Action::kDiskRead:
        case Action::kDiskWrite:
          move_disk();
          break;
      }
    }
    check_end();
    return std::move(faults_);
  }

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(
        fmt::format("instruction {} ({} of unit {}): ", at_, name_of(instruction_->action), instruction_->unit) +
        fmt::format(format, std::forward<Args>(args)...));
  }

  // A step before, backward has updated the first pieces of a unit: as many as it does again in this one.
  Content at_begin(int unit, What before, What after) const {
    const auto u = static_cast<size_t>(unit);
    const bool all = early_[u] == static_cast<int>(program_.state[u].size());
    return all ? Content{after, unit, 0} : Content{before, unit, early_[u]};
  }
  Content at_end(int unit, What after, What next) const {
    const int early = early_[static_cast<size_t>(unit)];
    return early > 0 ? Content{next, unit, early} : Content{after, unit, 0};
  }

  const Buffer& buffer(const Use& use) const { return program_.buffers[static_cast<size_t>(use.buffer)]; }

  // The one use of a role, null (and a fault) when there is none or it does not write where it has to.
  const Use* use_of(Role role, bool write, std::string_view name) {
    const Use* found = nullptr;
    for (const Use& use : instruction_->uses) {
      if (use.role != role) continue;
      if (found != nullptr) fault("uses two buffers as {}", name);
      found = &use;
    }
    if (found == nullptr) {
      fault("has no {}", name);
    } else if (write && !found->write) {
      fault("only reads its {}", name);
      return nullptr;
    }
    return found;
  }

  void expect(Role role, const Content& content, std::string_view name) {
    const Use* use = use_of(role, false, name);
    if (use == nullptr) return;
    const Content& found = contents_[static_cast<size_t>(use->buffer)];
    if (found != content) fault("its {} {} holds {}, not {}", name, buffer(*use).name, text(found), text(content));
  }
  void put(Role role, const Content& content, std::string_view name) {
    if (const Use* use = use_of(role, true, name)) contents_[static_cast<size_t>(use->buffer)] = content;
  }
  void replace(Role role, const Content& before, const Content& after, std::string_view name) {
    expect(role, before, name);
    put(role, after, name);
  }
  void expect_bytes(Role role, int64_t bytes, std::string_view name) {
    for (const Use& use : instruction_->uses) {
      if (use.role == role && buffer(use).bytes < bytes) {
        fault("its {} {} has {} bytes, {} are needed", name, buffer(use).name, buffer(use).bytes, bytes);
      }
    }
  }

  // The buffers of the unit's state on disk, and that every part of the state lies in a buffer that is meant for it.
  void find_parts() {
    std::map<std::pair<Tier, int64_t>, int> begins;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (buffer.state) begins[{buffer.tier, buffer.offset}] = static_cast<int>(b);
    }
    for (size_t u = 0; u < program_.state.size(); ++u) {
      for (size_t k = 0; k < program_.state[u].size(); ++k) {
        const StatePiece& piece = program_.state[u][k];
        const StatePlace* places[kParts] = {&piece.hi, &piece.lo, &piece.optimizer, &piece.gradient};
        for (int part = 0; part < kParts; ++part) {
          auto it = begins.upper_bound({places[part]->tier, places[part]->offset});
          const bool none = it == begins.begin() || (--it)->first.first != places[part]->tier;
          const int b = none ? -1 : it->second;
          const Purpose purpose = part == kOptimizer  ? Purpose::kOptimizer
                                  : part == kGradient ? Purpose::kGradients
                                                      : Purpose::kWeights;
          const bool disk = places[part]->tier == Tier::kDisk;
          if (none || program_.buffers[static_cast<size_t>(b)].unit != static_cast<int>(u) ||
              program_.buffers[static_cast<size_t>(b)].purpose != purpose ||
              (disk && program_.buffers[static_cast<size_t>(b)].offset != places[part]->offset)) {
            faults_.push_back(fmt::format("piece {} of the state of unit {} lies nowhere", k, u));
            return;
          }
          if (!disk) continue;
          contents_[static_cast<size_t>(b)] = {What::kOldPart, static_cast<int>(u),
                                               part_count(static_cast<int>(k), part)};
          parts_[{static_cast<int>(u), static_cast<int>(k), part}] = b;
        }
      }
    }
  }

  // The parts of a piece that lie on disk, or of the pieces.
  std::vector<int> parts_of(int unit, int piece, std::initializer_list<int> which) const {
    std::vector<int> found;
    for (const int part : which) {
      if (const auto it = parts_.find({unit, piece, part}); it != parts_.end()) found.push_back(it->second);
    }
    return found;
  }

  void update() {
    const int u = instruction_->unit, piece = instruction_->piece;
    const auto pieces = static_cast<int>(program_.state[static_cast<size_t>(u)].size());
    if (piece < 0 || piece >= pieces) return fault("is of piece {} of {}", piece, pieces);
    if (program_.state[static_cast<size_t>(u)][static_cast<size_t>(piece)].early) return update_early();
    const bool last = piece + 1 == pieces;
    const auto on_disk = [&](int part) { return parts_.contains({u, piece, part}); };
    if (!on_disk(kGradient)) expect(Role::kGradientStore, {What::kOldGradient, u, 0}, "gradient");
    // Of state in memory the pieces go one by one; it counts as updated with the last.
    const auto in_memory = [&](Role role, What before, What after, std::string_view name) {
      replace(role, {before, u, piece}, last ? Content{after, u, 0} : Content{before, u, piece + 1}, name);
    };
    if (!on_disk(kHi)) in_memory(Role::kWeights, What::kOldWeights, What::kWeights, "weights");
    if (!on_disk(kOptimizer)) in_memory(Role::kOptimizer, What::kOldState, What::kState, "optimizer state");
    if (on_disk(kHi) || on_disk(kOptimizer) || on_disk(kGradient)) {
      replace(Role::kStaged, {What::kOldStaged, u, piece}, {What::kStaged, u, piece}, "staged state");
    }
    for (const Use& use : instruction_->uses) {
      if (use.role != Role::kOutput) continue;
      if (!on_disk(kHi)) fault("hands on weights that are in memory anyway");
      if (piece > 0) expect(Role::kOutput, {What::kSomeWeights, u, piece}, "weights for the window");
      put(Role::kOutput, last ? Content{What::kWeights, u, 0} : Content{What::kSomeWeights, u, piece + 1},
          "weights for the window");
      expect_bytes(Role::kOutput, weight_bytes_[u] / (program_.compute == DType::kF32 ? 1 : 2), "weights");
    }
  }

  // With the gradient of this step, of state in memory, pieces from the first on.
  void update_early() {
    const int u = instruction_->unit, piece = instruction_->piece;
    expect(Role::kGradientStore, {What::kStored, u, 0}, "gradient");
    const auto in_memory = [&](Role role, What current, What next, std::string_view name) {
      replace(role, piece == 0 ? Content{current, u, 0} : Content{next, u, piece}, {next, u, piece + 1}, name);
    };
    in_memory(Role::kWeights, What::kWeights, What::kNextWeights, "weights");
    in_memory(Role::kOptimizer, What::kState, What::kNextState, "optimizer state");
  }

  // Between memory and disk; several buffers on the disk's side stand one behind the other in memory.
  void move_disk() {
    const bool read = instruction_->action == Action::kDiskRead;
    const int u = instruction_->unit, piece = instruction_->piece;
    const Tier memory_tier = program_.one_memory ? Tier::kDevice : Tier::kHost;
    std::vector<int> disk;
    int memory = -1;
    int64_t bytes = 0;
    for (const Use& use : instruction_->uses) {
      const bool on_disk_side = use.role == (read ? Role::kSource : Role::kTarget);
      if (buffer(use).tier != (on_disk_side ? Tier::kDisk : memory_tier) || use.write != (use.role == Role::kTarget)) {
        fault("moves {}, on {}, as its {}", buffer(use).name, name_of(buffer(use).tier),
              use.role == Role::kSource ? "source" : "target");
      }
      if (buffer(use).offset % kDiskAlignment != 0 || buffer(use).bytes % kDiskAlignment != 0) {
        fault("{} is not aligned to what disk transfers are made of", buffer(use).name);
      }
      if (on_disk_side) {
        disk.push_back(use.buffer);
        bytes += buffer(use).bytes;
      } else {
        memory = use.buffer;
      }
    }
    if (memory < 0 || disk.empty()) return fault("has no source or no target");
    if (program_.buffers[static_cast<size_t>(memory)].bytes < bytes) fault("its buffer in memory is too small");
    Content& in_memory = contents_[static_cast<size_t>(memory)];
    const std::vector<int> staged = parts_of(u, piece, {kHi, kLo, kOptimizer, kGradient});
    if (read && disk == staged && contents_[static_cast<size_t>(disk[0])].what == What::kOldPart) {
      for (size_t i = 0; i < disk.size(); ++i) expect_part(disk[i], What::kOldPart);
      in_memory = {What::kOldStaged, u, piece};
    } else if (read && contents_[static_cast<size_t>(disk[0])].what == What::kPart) {
      read_weights(disk, in_memory);
    } else if (!read && in_memory == Content{What::kStaged, u, piece}) {
      if (disk != parts_of(u, piece, {kHi, kLo, kOptimizer})) fault("does not write the parts that were updated");
      for (const int b : disk) turn_part(b, What::kOldPart, What::kPart);
    } else if (!read && in_memory == Content{What::kStored, u, 0}) {
      if (disk != all_parts(u, {kGradient})) fault("does not write the whole gradient");
      for (const int b : disk) turn_part(b, What::kOldPart, What::kPart);
    } else if (disk.size() == 1) {  // boundaries and retained sets, as they are
      const Content from = read ? contents_[static_cast<size_t>(disk[0])] : in_memory;
      if (from.what != What::kBoundary && from.what != What::kRetained) fault("moves {}", text(from));
      if (from.unit != u) fault("moves {}", text(from));
      (read ? in_memory : contents_[static_cast<size_t>(disk[0])]) = from;
    } else {
      fault("moves {} to {} buffers", text(in_memory), disk.size());
    }
  }

  void read_weights(const std::vector<int>& disk, Content& in_memory) {
    const int u = instruction_->unit;
    std::vector<int> expected = all_parts(u, {kHi});
    if (program_.compute == DType::kF32) {
      const std::vector<int> lo = all_parts(u, {kLo});
      expected.insert(expected.end(), lo.begin(), lo.end());
    }
    if (disk != expected) fault("does not read the whole weights");
    for (const int b : disk) expect_part(b, What::kPart);
    in_memory = {What::kWeights, u, 0};
  }

  std::vector<int> all_parts(int unit, std::initializer_list<int> which) const {
    std::vector<int> found;
    for (size_t k = 0; k < program_.state[static_cast<size_t>(unit)].size(); ++k) {
      const std::vector<int> of_piece = parts_of(unit, static_cast<int>(k), which);
      found.insert(found.end(), of_piece.begin(), of_piece.end());
    }
    return found;
  }

  void expect_part(int b, What what) {
    const Content& found = contents_[static_cast<size_t>(b)];
    if (found.what != what) fault("{} holds {}", program_.buffers[static_cast<size_t>(b)].name, text(found));
  }
  void turn_part(int b, What before, What after) {
    expect_part(b, before);
    contents_[static_cast<size_t>(b)].what = after;
  }

  // Between device and host as the action says; the target holds what the source held.
  void move() {
    const Use* from = use_of(Role::kSource, false, "source");
    const Use* to = use_of(Role::kTarget, true, "target");
    if (from == nullptr || to == nullptr) return;
    const bool out = instruction_->action == Action::kCopyOut;
    const Tier source = out ? Tier::kDevice : Tier::kHost, target = out ? Tier::kHost : Tier::kDevice;
    if (buffer(*from).tier != source || buffer(*to).tier != target) {
      fault("moves {} to {}: from {} to {}", buffer(*from).name, buffer(*to).name, name_of(buffer(*from).tier),
            name_of(buffer(*to).tier));
    }
    const Content content = contents_[static_cast<size_t>(from->buffer)];
    if (content.what == What::kNothing) fault("moves {}, which holds nothing", buffer(*from).name);
    if (content.unit != instruction_->unit) fault("moves {}", text(content));
    contents_[static_cast<size_t>(to->buffer)] = content;
    // Gradients are rounded on their way to the store.
    const bool rounds = content.what == What::kGradientSum && buffer(*to).purpose == Purpose::kGradients;
    const int64_t needed = rounds ? buffer(*from).bytes / 4 * size_of(program_.gradient) : buffer(*from).bytes;
    if (buffer(*to).bytes < needed) fault("{} is too small for {}", buffer(*to).name, buffer(*from).name);
  }

  // State is where it lives, and of this step.
  void check_end() {
    for (size_t b = 0; b < contents_.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (!buffer.state) continue;
      if (buffer.tier == Tier::kDisk) {
        if (contents_[b].what != What::kPart) {
          faults_.push_back(fmt::format("at the end {} holds {}", buffer.name, text(contents_[b])));
        }
        continue;
      }
      const Content expected =
          buffer.purpose == Purpose::kWeights     ? at_end(buffer.unit, What::kWeights, What::kNextWeights)
          : buffer.purpose == Purpose::kOptimizer ? at_end(buffer.unit, What::kState, What::kNextState)
                                                  : Content{What::kStored, buffer.unit, 0};
      if (contents_[b] != expected) {
        faults_.push_back(fmt::format("at the end {} holds {}", buffer.name, text(contents_[b])));
      }
    }
  }

  void copy_in() {
    const int u = instruction_->unit;
    expect(Role::kWeights, {What::kWeights, u, 0}, "weights");
    put(Role::kOutput, {What::kWeights, u, 0}, "copy");
    expect_bytes(Role::kOutput, program_.compute == DType::kF32 ? weight_bytes_[u] : weight_bytes_[u] / 2, "copy");
  }

  void accumulate() {
    const int u = instruction_->unit;
    const int contributions = program_.micro_batches * (tied_ && u == 0 ? 2 : 1);
    const Content sum{What::kGradientSum, u, contributions};
    const bool in_store = std::none_of(instruction_->uses.begin(), instruction_->uses.end(),
                                       [](const Use& use) { return use.role == Role::kWeightGradient; });
    if (in_store) {  // copied out there already
      replace(Role::kGradientStore, sum, {What::kStored, u, 0}, "stored gradient");
    } else {
      expect(Role::kWeightGradient, sum, "gradient sum");
      if (!parts_.contains({u, 0, kGradient})) {
        expect(Role::kGradientStore, {What::kOldGradient, u, 0}, "stored gradient");
      }
      put(Role::kGradientStore, {What::kStored, u, 0}, "stored gradient");
    }
  }

  void compute() {
    const Instruction& i = *instruction_;
    const int u = i.unit, m = i.micro;
    check_steps();
    if (u > 0 || i.pass != Pass::kBackward) expect(Role::kWeights, {What::kWeights, u, 0}, "weights");
    if (u > 0) expect(Role::kInput, {What::kBoundary, u - 1, m}, "input");
    check_workspace();
    const bool retains = program_.retained[static_cast<size_t>(u)].bytes > 0 && u < head_;
    if (retains) expect_bytes(Role::kRetained, program_.retained[static_cast<size_t>(u)].bytes, "retained set");
    switch (i.pass) {
      case Pass::kForward:
        if (retains) put(Role::kRetained, {What::kRetained, u, m}, "retained set");
        [[fallthrough]];
      case Pass::kBlockRecompute:
        put(Role::kOutput, {What::kBoundary, u, m}, "output");
        check_boundary(Role::kOutput);
        break;
      case Pass::kRecompute:
        if (retains) expect(Role::kRetained, {What::kRetained, u, m}, "retained set");
        break;
      case Pass::kBackward:
        if (retains) expect(Role::kRetained, {What::kRetained, u, m}, "retained set");
        replace(Role::kGradient, {What::kBoundaryGrad, u, m}, {What::kBoundaryGrad, u - 1, m}, "boundary gradient");
        add_gradient(Role::kWeightGradient, u, m, u == 0 && tied_ ? program_.micro_batches + m : m);
        break;
      case Pass::kLoss:
        put(Role::kGradient, {What::kBoundaryGrad, u - 1, m}, "boundary gradient");
        check_boundary(Role::kGradient);
        add_gradient(Role::kWeightGradient, u, m, m);
        if (!tied_) break;
        expect(Role::kTiedWeights, {What::kWeights, 0, 0}, "tied weights");
        add_gradient(Role::kTiedGradient, 0, m, m);
        break;
    }
  }

  // `before` contributions are in the sum; the first overwrites whatever is there.
  void add_gradient(Role role, int unit, int micro, int before) {
    const Content after{What::kGradientSum, unit, before + 1};
    if (before == 0 && micro == 0) {
      put(role, after, "gradient sum");
    } else {
      replace(role, {What::kGradientSum, unit, before}, after, "gradient sum");
    }
    expect_bytes(role, weight_bytes_[unit], "gradient sum");
  }

  // Passes of one kind and unit share a layout, which no others use, and run the steps that are theirs.
  void check_steps() {
    const Instruction& i = *instruction_;
    const bool backward = i.pass == Pass::kRecompute || i.pass == Pass::kBackward;
    const std::pair<int, Pass> owner{i.unit, backward ? Pass::kBackward : i.pass};
    const auto [it, added] = layout_owner_.try_emplace(i.layout, owner);
    if (!added && it->second != owner) fault("its layout {} is that of unit {}", i.layout, it->second.first);
    const graph::Pass& layout = program_.layouts[static_cast<size_t>(i.layout)];
    const auto steps = static_cast<int>(layout.steps.size());
    const int first = i.pass == Pass::kBackward ? layout.recompute_steps : 0;
    const int last = i.pass == Pass::kRecompute ? layout.recompute_steps : steps;
    if (i.first_step != first || i.last_step != last) {
      fault("runs steps {} to {}, not {} to {}", i.first_step, i.last_step, first, last);
    }
  }

  void check_workspace() {
    const Instruction& i = *instruction_;
    const graph::Pass& layout = program_.layouts[static_cast<size_t>(i.layout)];
    expect_bytes(Role::kWorkspace, layout.workspace_bytes, "workspace");
    const Content regenerated{What::kRegenerated, i.unit, i.micro};
    if (i.pass == Pass::kBackward && layout.recompute_steps > 0) expect(Role::kWorkspace, regenerated, "workspace");
    put(Role::kWorkspace, i.pass == Pass::kRecompute ? regenerated : Content{}, "workspace");
  }

  // All boundaries and their gradients have one size: the gradient turns into the next one in place.
  void check_boundary(Role role) {
    for (const Use& use : instruction_->uses) {
      if (use.role != role) continue;
      if (boundary_bytes_ < 0) boundary_bytes_ = buffer(use).bytes;
      if (buffer(use).bytes != boundary_bytes_) {
        fault("{} has {} bytes, other boundaries {}", buffer(use).name, buffer(use).bytes, boundary_bytes_);
      }
    }
  }

  const Program& program_;
  std::vector<Content> contents_;  // by buffer
  int head_;
  bool tied_ = false;
  std::vector<int> early_;                   // by unit: pieces that backward updates
  std::map<int, int64_t> weight_bytes_;      // by unit, of both halves: as many as of fp32 copies and sums
  std::map<std::array<int, 3>, int> parts_;  // {unit, piece, part} on disk: its buffer
  std::map<int, std::pair<int, Pass>> layout_owner_;
  int64_t boundary_bytes_ = -1;
  int at_ = 0;
  const Instruction* instruction_ = nullptr;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check_contents(const Program& program) { return Follower(program).run(); }

}  // namespace lazytrain::plan
