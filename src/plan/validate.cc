#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "plan/contents.h"
#include "plan/program.h"

namespace lazytrain::plan {
namespace {

// happens-before over the instructions, from lane order and dependencies alone (not from how compile() made them).
class Order {
 public:
  explicit Order(const Program& program) : words_((program.instructions.size() + 63) / 64) {
    std::array<int, kLanes> last;
    last.fill(-1);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      std::vector<uint64_t> row(words_, 0);
      const auto join = [&](int earlier) {
        if (earlier < 0 || earlier >= static_cast<int>(i)) return;
        const auto e = static_cast<size_t>(earlier);
        for (size_t w = 0; w < words_; ++w) row[w] |= before_[e][w];
        row[e / 64] |= uint64_t{1} << (e % 64);
      };
      join(last[static_cast<size_t>(instruction.lane)]);
      for (const int earlier : instruction.after) join(earlier);
      last[static_cast<size_t>(instruction.lane)] = static_cast<int>(i);
      before_.push_back(std::move(row));
    }
  }

  bool before(int a, int b) const {
    return (before_[static_cast<size_t>(b)][static_cast<size_t>(a) / 64] >> (static_cast<size_t>(a) % 64)) & 1;
  }

 private:
  size_t words_;
  std::vector<std::vector<uint64_t>> before_;
};

class Validator {
 public:
  explicit Validator(const Program& program) : program_(program), order_(program), uses_(program.buffers.size()) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const Use& use : program.instructions[i].uses) {
        if (use.buffer >= 0 && use.buffer < static_cast<int>(uses_.size())) {
          uses_[static_cast<size_t>(use.buffer)].push_back({static_cast<int>(i), use.write});
        }
      }
    }
  }

  std::vector<std::string> run() {
    check_references();
    if (!faults_.empty()) return faults_;  // nothing below is meaningful with dangling references
    check_capacity();
    check_uses();
    check_overlaps();
    check_work();
    check_places();
    check_early_updates();
    if (!program_.policy.update_chases_forward) check_updates_first();
    if (faults_.empty()) faults_ = check_contents(program_);
    return faults_;
  }

 private:
  struct Access {
    int instruction;
    bool write;
  };

  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Dependencies point back (so no cycle, no deadlock) and everything named exists.
  void check_references() {
    const size_t units = program_.policy.units.size();
    if (units < 2 || program_.retained.size() != units || program_.state.size() != units ||
        program_.micro_batches < 1) {
      fault("the program has {} units, {} retained sets and {} micro-batches", units, program_.retained.size(),
            program_.micro_batches);
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      for (const int earlier : instruction.after) {
        if (earlier < 0 || earlier >= static_cast<int>(i))
          fault("instruction {} waits for {}: not an earlier one", i, earlier);
      }
      for (const Use& use : instruction.uses) {
        if (use.buffer < 0 || use.buffer >= static_cast<int>(program_.buffers.size())) {
          fault("instruction {} uses buffer {}, which does not exist", i, use.buffer);
        }
      }
      if (instruction.unit < 0 || instruction.unit >= static_cast<int>(units)) {
        fault("instruction {} is of unit {} of {}", i, instruction.unit, units);
      }
      if (instruction.action != Action::kCompute) continue;
      if (instruction.layout < 0 || instruction.layout >= static_cast<int>(program_.layouts.size())) {
        fault("instruction {} has no layout", i);
        continue;
      }
      const auto steps = static_cast<int>(program_.layouts[static_cast<size_t>(instruction.layout)].steps.size());
      if (instruction.first_step < 0 || instruction.first_step > instruction.last_step ||
          instruction.last_step > steps) {
        fault("instruction {} runs steps {} to {} of {}", i, instruction.first_step, instruction.last_step, steps);
      }
      if (instruction.micro < 0 || instruction.micro >= program_.micro_batches) {
        fault("instruction {} is of micro-batch {} of {}", i, instruction.micro, program_.micro_batches);
      }
    }
  }

  void check_capacity() {
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.offset < 0 || buffer.bytes < 0 ||
          buffer.offset + buffer.bytes > program_.tier_bytes[static_cast<size_t>(buffer.tier)]) {
        fault("{}: bytes {} to {} lie outside the {} of the {}", buffer.name, buffer.offset,
              buffer.offset + buffer.bytes, program_.tier_bytes[static_cast<size_t>(buffer.tier)],
              name_of(buffer.tier));
      }
    }
  }

  // Every read has a write before it, and any two uses of which one writes are ordered.
  void check_uses() {
    for (size_t b = 0; b < uses_.size(); ++b) {
      const auto& accesses = uses_[b];
      for (size_t i = 0; i < accesses.size(); ++i) {
        if (i == 0 && !accesses[i].write && !program_.buffers[b].state) {
          fault("{}: read by instruction {} before anything wrote it", program_.buffers[b].name,
                accesses[i].instruction);
        }
        for (size_t j = i + 1; j < accesses.size(); ++j) {
          if (!accesses[i].write && !accesses[j].write) continue;
          if (accesses[i].instruction != accesses[j].instruction &&
              !order_.before(accesses[i].instruction, accesses[j].instruction)) {
            fault("{}: instructions {} and {} use it in no order", program_.buffers[b].name, accesses[i].instruction,
                  accesses[j].instruction);
          }
        }
      }
    }
  }

  // Buffers that share bytes are used strictly one after the other.
  void check_overlaps() {
    std::vector<size_t> by_offset;
    for (size_t b = 0; b < uses_.size(); ++b) {
      if (!uses_[b].empty() && program_.buffers[b].bytes > 0) by_offset.push_back(b);
    }
    std::sort(by_offset.begin(), by_offset.end(),
              [&](size_t x, size_t y) { return program_.buffers[x].offset < program_.buffers[y].offset; });
    for (size_t i = 0; i < by_offset.size(); ++i) {
      const Buffer& a = program_.buffers[by_offset[i]];
      for (size_t j = i + 1; j < by_offset.size() && program_.buffers[by_offset[j]].offset < a.offset + a.bytes; ++j) {
        const Buffer& b = program_.buffers[by_offset[j]];
        if (a.tier == b.tier && !apart(uses_[by_offset[i]], uses_[by_offset[j]])) {
          fault("{} and {} share memory while both are alive", a.name, b.name);
        }
      }
    }
  }

  bool apart(const std::vector<Access>& a, const std::vector<Access>& b) const {
    const bool a_first = a.front().instruction < b.front().instruction;
    const auto& early = a_first ? a : b;
    const auto& late = a_first ? b : a;
    return std::all_of(early.begin(), early.end(), [&](const Access& e) {
      return std::all_of(late.begin(), late.end(),
                         [&](const Access& l) { return order_.before(e.instruction, l.instruction); });
    });
  }

  // Each unit is updated once, forwarded once a micro-batch, and its backward runs once; its gradients are handed to
  // the host once.
  void check_work() {
    std::map<std::array<int, 3>, int> count;  // {what, unit, micro-batch}
    constexpr int kUpdated = 100, kAccumulated = 101;
    for (const Instruction& i : program_.instructions) {
      if (i.action == Action::kUpdate) ++count[{kUpdated, i.unit, i.piece}];
      if (i.action == Action::kAccumulate) ++count[{kAccumulated, i.unit, 0}];
      if (i.action == Action::kCompute) ++count[{static_cast<int>(i.pass), i.unit, i.micro}];
    }
    const auto expect_once = [&](int what, int unit, int micro, std::string_view name) {
      if (const int found = count[{what, unit, micro}]; found != 1) {
        fault("unit {} micro-batch {}: {} runs {} times, expected once", unit, micro, name, found);
      }
    };
    const int head = static_cast<int>(program_.policy.units.size()) - 1;
    for (int u = 0; u <= head; ++u) {
      for (size_t piece = 0; piece < program_.state[static_cast<size_t>(u)].size(); ++piece) {
        expect_once(kUpdated, u, static_cast<int>(piece), "update");
      }
      expect_once(kAccumulated, u, 0, "accumulate");
      for (int m = 0; m < program_.micro_batches; ++m) {
        if (u < head) {
          expect_once(static_cast<int>(Pass::kForward), u, m, "forward");
          expect_once(static_cast<int>(Pass::kBackward), u, m, "backward");
        } else {
          expect_once(static_cast<int>(Pass::kLoss), u, m, "loss");
        }
      }
    }
  }

  // Instructions stand on the lane of their kind, and kernels find their buffers in the memory they can reach.
  void check_places() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (const auto expected = lane_of(instruction.action); expected && instruction.lane != *expected) {
        fault("instruction {} ({}) is on lane {}", i, name_of(instruction.action), name_of(instruction.lane));
      }
      if (program_.one_memory || instruction.action != Action::kCompute) continue;
      const Tier reach = instruction.lane == Lane::kHost ? Tier::kHost : Tier::kDevice;
      for (const Use& use : instruction.uses) {
        const Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
        if (buffer.tier != reach) fault("instruction {} cannot reach {} on {}", i, buffer.name, name_of(buffer.tier));
      }
    }
  }

  static std::optional<Lane> lane_of(Action action) {
    switch (action) {
      case Action::kCopyOut:
        return Lane::kD2H;
      case Action::kFetch:
        return Lane::kH2D;
      case Action::kDiskRead:
        return Lane::kDiskRead;
      case Action::kDiskWrite:
        return Lane::kDiskWrite;
      case Action::kCopyIn:
      case Action::kCompute:
      case Action::kAccumulate:
      case Action::kUpdate:
        return std::nullopt;
    }
    return std::nullopt;
  }

  bool is_early(const Instruction& i) const {
    const UnitState& state = program_.state[static_cast<size_t>(i.unit)];
    return i.piece >= 0 && static_cast<size_t>(i.piece) < state.size() && state[static_cast<size_t>(i.piece)].early;
  }

  // Backward updates only where the policy says so, state in memory, from a unit's first piece on.
  void check_early_updates() {
    for (size_t u = 0; u < program_.state.size(); ++u) {
      const UnitState& state = program_.state[u];
      for (size_t k = 0; k < state.size(); ++k) {
        if (!state[k].early) continue;
        if (!program_.policy.update_in_backward) fault("unit {} is updated in backward, against the policy", u);
        if (k > 0 && !state[k - 1].early) fault("unit {}: piece {} is updated before piece {}", u, k, k - 1);
        for (const StatePlace* place : {&state[k].hi, &state[k].lo, &state[k].optimizer, &state[k].gradient}) {
          if (place->tier == Tier::kDisk) fault("unit {} has state on disk and is updated in backward", u);
        }
      }
    }
  }

  void check_updates_first() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (program_.instructions[i].action != Action::kCompute) continue;
      for (size_t j = 0; j < program_.instructions.size(); ++j) {
        if (program_.instructions[j].action == Action::kUpdate && !is_early(program_.instructions[j]) &&
            !order_.before(static_cast<int>(j), static_cast<int>(i))) {
          fault("instruction {} does not wait for the update of unit {}, though the policy says that all come first", i,
                program_.instructions[j].unit);
        }
      }
    }
  }

  const Program& program_;
  Order order_;
  std::vector<std::vector<Access>> uses_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> validate(const Program& program) { return Validator(program).run(); }

}  // namespace lazytrain::plan
