#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/arith.h"
#include "base/error.h"
#include "base/interval_packing.h"
#include "plan/program.h"

namespace lazytrain::plan {
namespace {

constexpr int64_t kArenaAlignment = 64;    // a cache line
constexpr int64_t kStateAlignment = 4096;  // a page, and what direct disk I/O wants
constexpr int64_t kOptimizerBytes = 8;     // m and v in fp32
constexpr int kEmbedding = 0;

// One visit of a unit: the same weights serve all micro-batches.
struct Window {
  Pass pass;
  int unit;
};

class Compiler {
 public:
  Compiler(const graph::Graph& graph, const Policy& policy, const CompileOptions& options)
      : graph_(graph), options_(options) {
    program_.policy = policy;
    program_.compute = options.compute;
    program_.micro_batches = static_cast<int>(policy.micro_batches());
    program_.dims = {policy.micro_batch * policy.seq, policy.seq, size_of(options.compute)};
    head_ = static_cast<int>(graph.units.size()) - 1;
    boundaries_.assign(graph.units.size() - 1, std::vector<int>(static_cast<size_t>(program_.micro_batches), -1));
    retained_.assign(graph.units.size(), std::vector<int>(static_cast<size_t>(program_.micro_batches), -1));
    gradients_.assign(static_cast<size_t>(program_.micro_batches), -1);
    updated_.assign(graph.units.size(), false);
    for (size_t u = 0; u < graph.units.size(); ++u) {
      const auto values = graph::values_by_name(graph.units[u], policy.units[u].retained);
      program_.retained.push_back(graph::retained_set(graph.units[u], values, program_.dims));
    }
    add_state();
  }

  Program run() {
    const std::vector<Window> windows = make_windows();
    streamed_.assign(windows.size(), -1);
    for (size_t w = 0; w < windows.size(); ++w) {
      for (size_t ahead = w; ahead < std::min(windows.size(), w + static_cast<size_t>(program_.policy.weight_slots));
           ++ahead) {
        stream_weights(windows, ahead);
      }
      emit_window(windows[w], streamed_[w]);
    }
    emit_accumulates(0);
    place_buffers();
    add_dependencies();
    return std::move(program_);
  }

 private:
  bool streams() const { return options_.compute == DType::kF32; }
  bool tied(int unit) const { return graph_.tied && unit == head_; }
  const graph::Unit& unit(int u) const { return graph_.units[static_cast<size_t>(u)]; }
  Lane lane_of(int u) const { return u == kEmbedding ? Lane::kHost : Lane::kCompute; }

  int add_buffer(Purpose purpose, int u, int64_t bytes, const std::string& name) {
    program_.buffers.push_back({name, purpose, Tier::kDevice, false, u, bytes, 0});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void add_state() {
    const StateLayout layout = state_layout(graph_, options_.compute);
    for (int u = 0; u <= head_; ++u) {
      const UnitStateLayout& state = layout.units[static_cast<size_t>(u)];
      const auto add = [&](Purpose purpose, int64_t bytes, int64_t offset) {
        const int id = add_buffer(purpose, u, bytes, fmt::format("{} of {}", name_of(purpose), unit(u).name));
        Buffer& buffer = program_.buffers.back();
        buffer.tier = Tier::kHost;
        buffer.state = true;
        buffer.offset = offset;
        return id;
      };
      weights_.push_back(add(Purpose::kWeights, 4 * state.elements, state.weights));
      optimizer_.push_back(add(Purpose::kOptimizer, kOptimizerBytes * state.elements, state.optimizer));
      stored_gradients_.push_back(add(Purpose::kGradients, layout.gradient_bytes * state.elements, state.gradients));
    }
    program_.tier_bytes[static_cast<size_t>(Tier::kHost)] = layout.bytes;
    int64_t scratch[2] = {0, 0};  // compute lane, host lane
    for (int u = 0; u <= head_; ++u) {
      for (const graph::Op& op : unit(u).ops) {
        if (!options_.scratch_bytes) continue;
        auto& bytes = scratch[lane_of(u) == Lane::kHost ? 1 : 0];
        bytes = std::max(bytes, options_.scratch_bytes(*op.kind, program_.dims));
      }
    }
    compute_scratch_ = add_buffer(Purpose::kScratch, -1, scratch[0], "kernel scratch of the compute lane");
    host_scratch_ = add_buffer(Purpose::kScratch, -1, scratch[1], "kernel scratch of the host lane");
  }

  std::vector<Window> make_windows() const {
    std::vector<Window> windows;
    for (int u = 0; u < head_; ++u) windows.push_back({Pass::kForward, u});
    windows.push_back({Pass::kLoss, head_});
    const auto& boundaries = program_.policy.boundaries;
    for (int end = head_ - 1; end > 0;) {  // blocks between checkpoints, last to first
      int start = end - 1;
      while (!boundaries[static_cast<size_t>(start)].checkpoint) --start;
      const int last = program_.policy.recompute_whole_block && end - start > 1 ? end : end - 1;
      for (int u = start + 1; u <= last; ++u) windows.push_back({Pass::kBlockRecompute, u});
      for (int u = end; u > start; --u) windows.push_back({Pass::kBackward, u});
      end = start;
    }
    windows.push_back({Pass::kBackward, kEmbedding});
    return windows;
  }

  // The optimizer step that belongs to the gradients of the step before: unit 0 first, so that forward chases it.
  void emit_update(int u) {
    if (updated_[static_cast<size_t>(u)]) return;
    updated_[static_cast<size_t>(u)] = true;
    Instruction update{.action = Action::kUpdate, .lane = Lane::kHost, .unit = u, .uses = {}, .after = {}};
    const auto i = static_cast<size_t>(u);
    update.uses = {{stored_gradients_[i], Role::kGradientStore, false},
                   {weights_[i], Role::kWeights, true},
                   {optimizer_[i], Role::kOptimizer, true}};
    program_.instructions.push_back(std::move(update));
  }

  // Brings a window's weights to where its kernels read them: in place, or merged into an fp32 copy.
  void stream_weights(const std::vector<Window>& windows, size_t w) {
    const int u = windows[w].unit;
    emit_update(u);
    if (!streams() || streamed_[w] >= 0) return;
    if (windows[w].pass == Pass::kBackward && u == kEmbedding) return;  // its backward reads no weights
    streamed_[w] = copy_in(u);
    if (tied(u)) tied_streamed_ = copy_in(kEmbedding);
  }

  int copy_in(int u) {
    const auto i = static_cast<size_t>(u);
    const int target =
        add_buffer(Purpose::kStreamedWeights, u, 4 * unit(u).block_elements, "fp32 weights of " + unit(u).name);
    Instruction copy{.action = Action::kCopyIn, .lane = Lane::kH2D, .unit = u, .uses = {}, .after = {}};
    copy.uses = {{weights_[i], Role::kWeights, false}, {target, Role::kOutput, true}};
    program_.instructions.push_back(std::move(copy));
    return target;
  }

  void emit_window(const Window& window, int streamed) {
    const auto u = static_cast<size_t>(window.unit);
    weight_buffer_ = streamed >= 0 ? streamed : weights_[u];
    const bool backward = window.pass == Pass::kBackward || window.pass == Pass::kLoss;
    if (backward) {
      emit_accumulates(static_cast<size_t>(program_.policy.gradient_buffers) - 1);
      open_gradient(window.unit);
    }
    for (int m = 0; m < program_.micro_batches; ++m) {
      switch (window.pass) {
        case Pass::kForward:
        case Pass::kBlockRecompute:
          emit_forward(window, m);
          break;
        case Pass::kLoss:
          emit_loss(window.unit, m);
          break;
        case Pass::kRecompute:
        case Pass::kBackward:
          emit_backward(window.unit, m);
          break;
      }
    }
    if (backward) accumulates_.emplace_back(window.unit, gradient_buffer_);
  }

  // The fp32 accumulator of a unit's gradients. A tied head adds to the embedding's, which lives to the end.
  void open_gradient(int u) {
    const auto make = [&](int of) {
      return add_buffer(Purpose::kGradientAccumulators, of, 4 * unit(of).block_elements,
                        "fp32 gradients of " + unit(of).name);
    };
    gradient_buffer_ = u == kEmbedding && tied_gradient_ >= 0 ? tied_gradient_ : make(u);
    if (tied(u)) tied_gradient_ = make(kEmbedding);
  }

  // Leaves at most `keep` finished gradients on the device.
  void emit_accumulates(size_t keep) {
    while (accumulates_.size() > keep) {
      const auto [u, buffer] = accumulates_.front();
      accumulates_.pop_front();
      Instruction accumulate{.action = Action::kAccumulate, .lane = Lane::kHost, .unit = u, .uses = {}, .after = {}};
      accumulate.uses = {{buffer, Role::kWeightGradient, false},
                         {stored_gradients_[static_cast<size_t>(u)], Role::kGradientStore, true}};
      program_.instructions.push_back(std::move(accumulate));
    }
  }

  int new_boundary(int boundary, int m, std::string_view what) {
    const auto& value = unit(boundary).values[static_cast<size_t>(unit(boundary).output)];
    return add_buffer(Purpose::kBoundaries, boundary, graph::value_bytes(value, program_.dims),
                      fmt::format("{} {} micro-batch {}", what, boundary, m));
  }

  Instruction compute(Pass pass, int u, int m, int layout, int first, int last) {
    Instruction instruction{.action = Action::kCompute,
                            .lane = lane_of(u),
                            .unit = u,
                            .pass = pass,
                            .micro = m,
                            .layout = layout,
                            .first_step = first,
                            .last_step = last,
                            .uses = {},
                            .after = {}};
    const int scratch = lane_of(u) == Lane::kHost ? host_scratch_ : compute_scratch_;
    instruction.uses = {{weight_buffer_, Role::kWeights, false}, {scratch, Role::kScratch, true}};
    if (tied(u)) {
      const int embedding = streams() ? tied_streamed_ : weights_[kEmbedding];
      instruction.uses.push_back({embedding, Role::kTiedWeights, false});
    }
    return instruction;
  }

  // Layouts are made once a unit and kind; micro-batches share them.
  int layout_of(int u, int kind, const std::function<graph::Pass()>& make) {
    const auto [it, added] = layouts_.try_emplace({u, kind}, static_cast<int>(program_.layouts.size()));
    if (added) program_.layouts.push_back(make());
    return it->second;
  }

  int workspace(int u, int layout, std::string_view what) {
    const int64_t bytes = program_.layouts[static_cast<size_t>(layout)].workspace_bytes;
    return add_buffer(Purpose::kWorkspace, u, bytes, fmt::format("{} workspace of {}", what, unit(u).name));
  }

  void emit_forward(const Window& window, int m) {
    const int u = window.unit;
    const auto i = static_cast<size_t>(u), mi = static_cast<size_t>(m);
    const bool again = window.pass == Pass::kBlockRecompute;
    const graph::RetainedSet none;
    const graph::RetainedSet& retained = again ? none : program_.retained[i];
    const int layout =
        layout_of(u, again ? 1 : 0, [&] { return graph::forward_pass(unit(u), retained, program_.dims); });
    const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
    Instruction forward = compute(window.pass, u, m, layout, 0, steps);
    if (u > 0) forward.uses.push_back({boundaries_[i - 1][mi], Role::kInput, false});
    const int output = new_boundary(u, m, again ? "recomputed boundary" : "boundary");
    forward.uses.push_back({output, Role::kOutput, true});
    // The output of a block's last unit, when it is run again, is a boundary that is there already.
    if (!again || !program_.policy.boundaries[i].checkpoint) boundaries_[i][mi] = output;
    if (retained.bytes > 0) {
      retained_[i][mi] = add_buffer(Purpose::kRetained, u, retained.bytes,
                                    fmt::format("retained of {} micro-batch {}", unit(u).name, m));
      forward.uses.push_back({retained_[i][mi], Role::kRetained, true});
    }
    forward.uses.push_back({workspace(u, layout, "forward"), Role::kWorkspace, true});
    program_.instructions.push_back(std::move(forward));
  }

  void emit_loss(int u, int m) {
    const auto mi = static_cast<size_t>(m);
    const int layout = layout_of(u, 2, [&] { return graph::loss_pass(unit(u), program_.dims); });
    const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
    Instruction loss = compute(Pass::kLoss, u, m, layout, 0, steps);
    const int boundary = boundaries_[static_cast<size_t>(u) - 1][mi];
    gradients_[mi] = add_buffer(Purpose::kBoundaryGradients, u, program_.buffers[static_cast<size_t>(boundary)].bytes,
                                fmt::format("boundary gradient micro-batch {}", m));
    loss.uses.insert(loss.uses.end(), {{boundary, Role::kInput, false},
                                       {gradients_[mi], Role::kGradient, true},
                                       {gradient_buffer_, Role::kWeightGradient, true},
                                       {workspace(u, layout, "loss"), Role::kWorkspace, true}});
    if (tied(u)) loss.uses.push_back({tied_gradient_, Role::kTiedGradient, true});
    program_.instructions.push_back(std::move(loss));
  }

  // Two instructions on one workspace: what is regenerated, then the backward that reads it.
  void emit_backward(int u, int m) {
    const auto i = static_cast<size_t>(u), mi = static_cast<size_t>(m);
    const int layout = layout_of(u, 3, [&] {
      return graph::backward_pass(unit(u), program_.retained[i], program_.dims, program_.policy.recompute_whole_unit);
    });
    const int split = program_.layouts[static_cast<size_t>(layout)].recompute_steps;
    const int steps = static_cast<int>(program_.layouts[static_cast<size_t>(layout)].steps.size());
    const int space = workspace(u, layout, "backward");
    const auto emit = [&](Pass pass, int first, int last) {
      Instruction instruction = compute(pass, u, m, layout, first, last);
      if (u > 0) instruction.uses.push_back({boundaries_[i - 1][mi], Role::kInput, false});
      if (retained_[i][mi] >= 0) {
        instruction.uses.push_back({retained_[i][mi], Role::kRetained, pass == Pass::kRecompute});
      }
      instruction.uses.push_back({space, Role::kWorkspace, true});
      if (pass == Pass::kBackward) {
        instruction.uses.push_back({gradients_[mi], Role::kGradient, true});
        instruction.uses.push_back({gradient_buffer_, Role::kWeightGradient, true});
      }
      program_.instructions.push_back(std::move(instruction));
    };
    if (split > 0) emit(Pass::kRecompute, 0, split);
    emit(Pass::kBackward, split, steps);
  }

  // Offsets by liveness over the list: a buffer lives from its first use to its last.
  void place_buffers() {
    std::vector<LiveItem> items(program_.buffers.size());
    for (size_t b = 0; b < items.size(); ++b)
      items[b] = {program_.buffers[b].state ? 0 : program_.buffers[b].bytes, -1, -1};
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const Use& use : program_.instructions[i].uses) {
        LiveItem& item = items[static_cast<size_t>(use.buffer)];
        if (item.first < 0) item.first = static_cast<int64_t>(i);
        item.last = static_cast<int64_t>(i);
      }
    }
    const Packing packing = pack_intervals(items, kArenaAlignment);
    for (size_t b = 0; b < items.size(); ++b) {
      if (!program_.buffers[b].state) program_.buffers[b].offset = packing.offsets[b];
    }
    program_.tier_bytes[static_cast<size_t>(Tier::kDevice)] = packing.bytes;
  }

  // Orders conflicting uses: of one buffer, and of buffers that share memory one after the other.
  void add_dependencies() {
    struct History {
      int writer = -1;
      std::array<int, kLanes> readers;  // the last on each lane since that write
      History() { readers.fill(-1); }
    };
    std::vector<History> history(program_.buffers.size());
    std::vector<int> seen;  // transient buffers in order of first use
    std::vector<bool> met(program_.buffers.size(), false);
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      std::array<int, kLanes> after;
      after.fill(-1);
      const auto need = [&](int earlier) {
        if (earlier < 0) return;
        const Lane lane = program_.instructions[static_cast<size_t>(earlier)].lane;
        if (lane != instruction.lane)
          after[static_cast<size_t>(lane)] = std::max(after[static_cast<size_t>(lane)], earlier);
      };
      const auto need_all = [&](const History& h) {
        need(h.writer);
        for (const int reader : h.readers) need(reader);
      };
      for (const Use& use : instruction.uses) {
        const auto b = static_cast<size_t>(use.buffer);
        if (!met[b] && !program_.buffers[b].state) {
          for (const int other : seen) {
            if (overlap(program_.buffers[b], program_.buffers[static_cast<size_t>(other)])) {
              need_all(history[static_cast<size_t>(other)]);
            }
          }
          seen.push_back(use.buffer);
          met[b] = true;
        }
        if (use.write) {
          need_all(history[b]);
        } else {
          need(history[b].writer);
        }
      }
      for (const Use& use : instruction.uses) {
        History& h = history[static_cast<size_t>(use.buffer)];
        if (use.write) {
          h = History();
          h.writer = static_cast<int>(i);
        } else {
          h.readers[static_cast<size_t>(instruction.lane)] = static_cast<int>(i);
        }
      }
      for (const int earlier : after) {
        if (earlier >= 0) instruction.after.push_back(earlier);
      }
    }
  }

  static bool overlap(const Buffer& a, const Buffer& b) {
    return a.tier == b.tier && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  }

  const graph::Graph& graph_;
  const CompileOptions& options_;
  Program program_;
  int head_ = 0;
  std::vector<int> weights_, optimizer_, stored_gradients_;  // state buffers by unit
  int compute_scratch_ = -1, host_scratch_ = -1;
  std::vector<std::vector<int>> boundaries_;  // [boundary][micro-batch], the current instance
  std::vector<std::vector<int>> retained_;    // [unit][micro-batch]
  std::vector<int> gradients_;                // boundary gradient by micro-batch
  std::vector<bool> updated_;
  std::vector<int> streamed_;  // by window, -1 while not brought in
  int weight_buffer_ = -1, gradient_buffer_ = -1, tied_streamed_ = -1, tied_gradient_ = -1;
  std::deque<std::pair<int, int>> accumulates_;  // unit, its gradient buffer
  std::map<std::pair<int, int>, int> layouts_;
};

}  // namespace

StateLayout state_layout(const graph::Graph& graph, DType compute) {
  StateLayout layout;
  layout.gradient_bytes = size_of(compute);
  const auto take = [&](int64_t bytes) {
    const int64_t offset = layout.bytes;
    layout.bytes += align_up(bytes, kStateAlignment);
    return offset;
  };
  for (const graph::Unit& unit : graph.units) {
    UnitStateLayout state;
    state.elements = unit.block_elements;
    state.weights = take(4 * state.elements);
    state.optimizer = take(kOptimizerBytes * state.elements);
    state.gradients = take(layout.gradient_bytes * state.elements);
    layout.units.push_back(state);
  }
  return layout;
}

std::string label(const Program& program, const graph::Graph& graph, int instruction) {
  const Instruction& i = program.instructions.at(static_cast<size_t>(instruction));
  const std::string& unit = graph.units.at(static_cast<size_t>(i.unit)).name;
  if (i.action != Action::kCompute) return fmt::format("{} {}", unit, name_of(i.action));
  return program.micro_batches > 1 ? fmt::format("{} {} {}", unit, name_of(i.pass), i.micro)
                                   : fmt::format("{} {}", unit, name_of(i.pass));
}

Program compile(const graph::Graph& graph, const Policy& policy, const CompileOptions& options) {
  check_against(policy, graph);
  const auto on_disk = [&](Tier tier, std::string_view what) {
    if (tier == Tier::kDisk) {
      throw UsageError("plan '{}' puts {} on disk; this machine's executor has device and host memory only",
                       policy.name, what);
    }
  };
  for (const auto& boundary : policy.boundaries) on_disk(boundary.home, "a boundary");
  for (const auto& unit : policy.units) {
    on_disk(unit.retained_home, "a retained set");
    on_disk(unit.weight_home, "weights");
    on_disk(unit.optimizer_home, "optimizer state");
  }
  return Compiler(graph, policy, options).run();
}

}  // namespace lazytrain::plan
