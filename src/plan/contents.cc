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
  kOldGradient,   // of `unit`, as the step before stored it
  kStored,        // gradient of `unit`, of this step
  kBoundary,      // behind `unit`, of micro-batch `count`
  kBoundaryGrad,  // of the boundary behind `unit`, of micro-batch `count`
  kRetained,      // of `unit`, of micro-batch `count`
  kRegenerated,   // a workspace that holds what backward of `unit` reads, of micro-batch `count`
  kGradientSum    // of `unit`'s parameters, over `count` contributions
};
constexpr std::array<std::string_view, 12> kWhatNames = {"nothing",
                                                         "weights before their update",
                                                         "weights",
                                                         "optimizer state before its update",
                                                         "optimizer state",
                                                         "the gradient of the step before",
                                                         "the stored gradient",
                                                         "boundary",
                                                         "boundary gradient",
                                                         "retained set",
                                                         "regenerated values",
                                                         "gradient sum"};

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
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (!buffer.state) continue;
      if (buffer.purpose == Purpose::kWeights) {
        contents_[b] = {What::kOldWeights, buffer.unit, 0};
        weight_bytes_[buffer.unit] = buffer.bytes;
      }
      if (buffer.purpose == Purpose::kOptimizer) contents_[b] = {What::kOldState, buffer.unit, 0};
      if (buffer.purpose == Purpose::kGradients) contents_[b] = {What::kOldGradient, buffer.unit, 0};
    }
    for (const Instruction& i : program.instructions) {
      for (const Use& use : i.uses) tied_ = tied_ || use.role == Role::kTiedWeights;
    }
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
        case Action::kDiskRead:
        case Action::kDiskWrite:
          move();
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

  void update() {
    const int u = instruction_->unit;
    expect(Role::kGradientStore, {What::kOldGradient, u, 0}, "gradient");
    replace(Role::kWeights, {What::kOldWeights, u, 0}, {What::kWeights, u, 0}, "weights");
    replace(Role::kOptimizer, {What::kOldState, u, 0}, {What::kState, u, 0}, "optimizer state");
  }

  // Between tiers as the action says; the target holds what the source held. Of weights the first half may be enough.
  void move() {
    const Use* from = use_of(Role::kSource, false, "source");
    const Use* to = use_of(Role::kTarget, true, "target");
    if (from == nullptr || to == nullptr) return;
    const Action action = instruction_->action;
    const Tier source = action == Action::kCopyOut    ? Tier::kDevice
                        : action == Action::kDiskRead ? Tier::kDisk
                                                      : Tier::kHost;
    const Tier target = action == Action::kFetch       ? Tier::kDevice
                        : action == Action::kDiskWrite ? Tier::kDisk
                                                       : Tier::kHost;
    if (buffer(*from).tier != source || buffer(*to).tier != target) {
      fault("moves {} to {}: from {} to {}", buffer(*from).name, buffer(*to).name, name_of(buffer(*from).tier),
            name_of(buffer(*to).tier));
    }
    const Content content = contents_[static_cast<size_t>(from->buffer)];
    if (content.what == What::kNothing) fault("moves {}, which holds nothing", buffer(*from).name);
    if (content.unit != instruction_->unit) fault("moves {}", text(content));
    contents_[static_cast<size_t>(to->buffer)] = content;
    // Gradients are rounded on their way to the store; weights that are only read need no remainder.
    const bool halves = content.what == What::kWeights && !buffer(*to).state;
    const bool rounds = content.what == What::kGradientSum && buffer(*to).state;
    const int64_t needed = halves || rounds ? buffer(*from).bytes / 2 : buffer(*from).bytes;
    if (buffer(*to).bytes < needed) fault("{} is too small for {}", buffer(*to).name, buffer(*from).name);
  }

  // State is where it lives, and of this step.
  void check_end() {
    for (size_t b = 0; b < contents_.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (!buffer.state) continue;
      const What expected = buffer.purpose == Purpose::kWeights     ? What::kWeights
                            : buffer.purpose == Purpose::kOptimizer ? What::kState
                                                                    : What::kStored;
      if (contents_[b] != Content{expected, buffer.unit, 0}) {
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
      replace(Role::kGradientStore, {What::kOldGradient, u, 0}, {What::kStored, u, 0}, "stored gradient");
    }
  }

  void compute() {
    const Instruction& i = *instruction_;
    const int u = i.unit, m = i.micro;
    check_steps();
    expect(Role::kWeights, {What::kWeights, u, 0}, "weights");
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
  std::map<int, int64_t> weight_bytes_;  // by unit, of both halves: as many as of fp32 copies and sums
  std::map<int, std::pair<int, Pass>> layout_owner_;
  int64_t boundary_bytes_ = -1;
  int at_ = 0;
  const Instruction* instruction_ = nullptr;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check_contents(const Program& program) { return Follower(program).run(); }

}  // namespace lazytrain::plan
