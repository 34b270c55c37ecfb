#include "graph/pass.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "base/arith.h"
#include "base/error.h"
#include "base/interval_packing.h"

namespace lazytrain::graph {
namespace {

constexpr int64_t kLine = 64;  // bytes; also the alignment of every value

bool contains(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The values that one op's backward reads.
std::vector<ValueId> reads_of(const Op& op) {
  const Reads& reads = op.reads;
  std::vector<ValueId> values;
  for (const int i : reads.inputs) values.push_back(op.inputs.at(static_cast<size_t>(i)));
  for (const int i : reads.outputs) values.push_back(op.outputs.at(static_cast<size_t>(i)));
  return values;
}

// Lays a pass out: which gradients share storage, where everything lies, how long it lives.
class PassBuilder {
 public:
  PassBuilder(const Unit& unit, const RetainedSet& retained, const Dims& dims) : unit_(unit), dims_(dims) {
    pass_.values.resize(unit.values.size());
    pass_.gradients.resize(unit.values.size());
    gradient_root_.assign(unit.values.size(), kNoRoot);
    for (size_t i = 0; i < retained.values.size(); ++i) {
      pass_.values[static_cast<size_t>(retained.values[i])] = {Place::kRetained, retained.offsets[i]};
    }
    if (unit.input >= 0) value(unit.input) = {Place::kInput, 0};
  }

  void place_output() {
    if (unit_.output >= 0) value(unit_.output) = {Place::kOutput, 0};
  }

  void forward(int op) { pass_.steps.push_back({op, false, {}}); }

  // Appends the backward of all ops, last to first. The gradient of the unit's output stands in kGradient.
  void backward() {
    pass_.recompute_steps = static_cast<int>(pass_.steps.size());
    if (unit_.output >= 0) gradient_root_[static_cast<size_t>(unit_.output)] = kBoundaryRoot;
    for (int op = static_cast<int>(unit_.ops.size()) - 1; op >= 0; --op) backward_of(op);
    settle_input_gradient();
  }

  Pass finish() {
    assign_workspace();
    return std::move(pass_);
  }

 private:
  // Storage of a gradient is named by the value it was first made for; the boundary's has a name of its own.
  static constexpr ValueId kNoRoot = -1;
  static constexpr ValueId kBoundaryRoot = -2;

  Location& value(ValueId id) { return pass_.values[static_cast<size_t>(id)]; }
  ValueId& root(ValueId id) { return gradient_root_[static_cast<size_t>(id)]; }

  void backward_of(int op) {
    const Op& o = unit_.ops[static_cast<size_t>(op)];
    if (o.kind->passes_gradient_through() && can_share(o)) {
      for (const ValueId input : o.inputs) root(input) = root(o.outputs[0]);
      return;  // nothing to run: the buffers are one
    }
    Step step{op, true, {}};
    for (const ValueId input : o.inputs) {
      const bool add = root(input) != kNoRoot;
      step.add_input_gradient.push_back(add);
      if (!add) {
        root(input) = input;
      } else {
        require_no_other_reader(op, input);
      }
    }
    pass_.steps.push_back(std::move(step));
  }

  bool can_share(const Op& op) {
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) { return root(input) == kNoRoot; });
  }

  // Adding to a shared gradient is legal once the op of every other value that shares it has read it: not while it is
  // this op's own output, nor the input's, which is read at the end.
  void require_no_other_reader(int op, ValueId input) {
    for (size_t other = 0; other < gradient_root_.size(); ++other) {
      const auto id = static_cast<ValueId>(other);
      if (id != input && gradient_root_[other] == root(input) && unit_.producer(id) <= op) {
        throw std::logic_error(fmt::format("{}: the gradients of '{}' and '{}' share storage but not their order",
                                           unit_.name, unit_.values[other].name,
                                           unit_.values[static_cast<size_t>(input)].name));
      }
    }
  }

  // The input's gradient must end where the output's came in. In a residual unit it does, through the adds.
  void settle_input_gradient() {
    if (unit_.input < 0) return;
    if (unit_.output < 0 && root(unit_.input) == unit_.input) root(unit_.input) = kBoundaryRoot;
    if (root(unit_.input) != kBoundaryRoot) {
      throw std::logic_error(fmt::format("{}: no residual path from its input to its output", unit_.name));
    }
  }

  // Every value and gradient without a buffer of its own gets a range of the workspace for the steps it lives in.
  void assign_workspace() {
    struct Life {
      int64_t first = -1, last = -1;
      void touch(int64_t step) {
        if (first < 0) first = step;
        last = step;
      }
    };
    std::vector<Life> value_life(unit_.values.size()), gradient_life(unit_.values.size());
    for (size_t s = 0; s < pass_.steps.size(); ++s) {
      const Step& step = pass_.steps[s];
      const Op& op = unit_.ops[static_cast<size_t>(step.op)];
      const auto at = static_cast<int64_t>(s);
      if (!step.backward) {
        for (const ValueId id : op.inputs) value_life[static_cast<size_t>(id)].touch(at);
        for (const ValueId id : op.outputs) value_life[static_cast<size_t>(id)].touch(at);
        continue;
      }
      for (const ValueId id : reads_of(op)) value_life[static_cast<size_t>(id)].touch(at);
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (const ValueId id : *ids) {
          if (root(id) >= 0) gradient_life[static_cast<size_t>(root(id))].touch(at);
        }
      }
    }
    std::vector<LiveItem> items;
    std::vector<Location*> targets;
    for (size_t i = 0; i < unit_.values.size(); ++i) {
      const int64_t bytes = value_bytes(unit_.values[i], dims_);
      if (value_life[i].first >= 0 && pass_.values[i].place == Place::kNowhere) {
        items.push_back({bytes, value_life[i].first, value_life[i].last});
        targets.push_back(&pass_.values[i]);
      }
      if (gradient_life[i].first >= 0) {
        items.push_back({bytes, gradient_life[i].first, gradient_life[i].last});
        targets.push_back(&pass_.gradients[i]);
      }
    }
    const Packing packing = pack_intervals(items, kLine);
    for (size_t i = 0; i < items.size(); ++i) *targets[i] = {Place::kWorkspace, packing.offsets[i]};
    pass_.workspace_bytes = packing.bytes;
    for (size_t i = 0; i < unit_.values.size(); ++i) {
      const ValueId r = gradient_root_[i];
      if (r == kBoundaryRoot) pass_.gradients[i] = {Place::kGradient, 0};
      if (r >= 0 && r != static_cast<ValueId>(i)) pass_.gradients[i] = pass_.gradients[static_cast<size_t>(r)];
    }
  }

  const Unit& unit_;
  Dims dims_;
  Pass pass_;
  std::vector<ValueId> gradient_root_;
};

}  // namespace

int64_t value_bytes(const ValueSpec& value, const Dims& dims) {
  const int64_t element = value.element == Element::kF32 ? 4 : dims.activation_bytes;
  return align_up(dims.tokens * value.width * element, kLine);
}

RetainedSet retained_set(const Unit& unit, std::vector<ValueId> values, const Dims& dims) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  values.erase(
      std::remove_if(values.begin(), values.end(), [&](ValueId id) { return id == unit.input || id == unit.output; }),
      values.end());
  RetainedSet set{std::move(values), {}, 0};
  for (const ValueId id : set.values) {
    set.offsets.push_back(set.bytes);
    set.bytes += value_bytes(unit.values.at(static_cast<size_t>(id)), dims);
  }
  return set;
}

std::vector<ValueId> values_by_name(const Unit& unit, const std::vector<std::string>& names) {
  std::vector<ValueId> ids;
  for (const auto& name : names) {
    const auto it = std::find_if(unit.values.begin(), unit.values.end(), [&](const auto& v) { return v.name == name; });
    if (it == unit.values.end()) {
      std::vector<std::string_view> known;
      for (const auto& v : unit.values) known.push_back(v.name);
      throw UsageError("{}: no value is named '{}'; it has {}", unit.name, name, fmt::join(known, ", "));
    }
    ids.push_back(static_cast<ValueId>(it - unit.values.begin()));
  }
  return ids;
}

std::vector<ValueId> backward_needs(const Unit& unit) {
  std::vector<ValueId> needs;
  for (const Op& op : unit.ops) {
    for (const ValueId id : reads_of(op)) {
      if (id != unit.input && !contains(needs, id)) needs.push_back(id);
    }
  }
  std::sort(needs.begin(), needs.end());
  return needs;
}

std::vector<ValueId> costly_to_recompute(const Unit& unit) {
  std::vector<ValueId> open = backward_needs(unit), keep, seen;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == unit.input || contains(seen, id)) continue;
    seen.push_back(id);
    const Op& op = unit.ops[static_cast<size_t>(unit.producer(id))];
    if (op.kind->cheap_to_recompute()) {
      open.insert(open.end(), op.inputs.begin(), op.inputs.end());
    } else {
      keep.push_back(id);
    }
  }
  std::sort(keep.begin(), keep.end());
  return keep;
}

std::vector<int> recompute_slice(const Unit& unit, const std::vector<ValueId>& retained) {
  std::vector<bool> run(unit.ops.size(), false);
  std::vector<ValueId> open = backward_needs(unit);
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == unit.input || contains(retained, id)) continue;
    const auto op = static_cast<size_t>(unit.producer(id));
    if (run[op]) continue;
    run[op] = true;
    open.insert(open.end(), unit.ops[op].inputs.begin(), unit.ops[op].inputs.end());
  }
  std::vector<int> slice;
  for (size_t i = 0; i < run.size(); ++i) {
    if (run[i]) slice.push_back(static_cast<int>(i));
  }
  return slice;
}

Pass forward_pass(const Unit& unit, const RetainedSet& retained, const Dims& dims) {
  PassBuilder builder(unit, retained, dims);
  builder.place_output();
  for (size_t i = 0; i < unit.ops.size(); ++i) builder.forward(static_cast<int>(i));
  return builder.finish();
}

Pass backward_pass(const Unit& unit, const RetainedSet& retained, const Dims& dims, bool whole_unit) {
  PassBuilder builder(unit, retained, dims);
  if (whole_unit && unit.kind == UnitKind::kLayer) {
    for (size_t i = 0; i < unit.ops.size(); ++i) builder.forward(static_cast<int>(i));
  } else {
    for (const int op : recompute_slice(unit, retained.values)) builder.forward(op);
  }
  builder.backward();
  return builder.finish();
}

Pass loss_pass(const Unit& unit, const Dims& dims) {
  PassBuilder builder(unit, {}, dims);
  for (size_t i = 0; i < unit.ops.size(); ++i) {
    if (!unit.ops[i].kind->is_loss()) builder.forward(static_cast<int>(i));
  }
  builder.backward();
  return builder.finish();
}

Work work_of(const Unit& unit, const Pass& pass, const Dims& dims, int first_step, int last_step) {
  Work work;
  for (int i = first_step; i < last_step; ++i) {
    const Step& step = pass.steps[static_cast<size_t>(i)];
    const OpKind& kind = *unit.ops[static_cast<size_t>(step.op)].kind;
    work += step.backward ? kind.backward_work(dims) : kind.forward_work(dims);
  }
  return work;
}

}  // namespace lazytrain::graph
