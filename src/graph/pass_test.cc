#include "graph/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/rng.h"
#include "graph/testing.h"

namespace lazytrain::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::toy_add;
using testing::toy_graph;
using testing::toy_linear;
using testing::toy_norm;

constexpr int64_t kLine = 64;

// Carries a pass out on a memory of cache lines that remember what was written there. A value is its own content; the
// content of a gradient is the set of contributions that were added up in it.
class PassSimulator {
 public:
  PassSimulator(const Unit& unit, const Pass& pass, const RetainedSet& retained, const Dims& dims)
      : unit_(unit), pass_(pass), retained_(retained), dims_(dims) {}

  void put_input() {
    if (unit_.input >= 0) write({Place::kInput, 0}, bytes(unit_.input), {unit_.input});
  }
  void put_retained() {
    for (const ValueId id : retained_.values) write(value(id), bytes(id), {id});
  }
  void put_output_gradient() { write({Place::kGradient, 0}, bytes(unit_.output), {kBoundary}); }

  void run() {
    for (size_t s = 0; s < pass_.steps.size(); ++s) {
      const Step& step = pass_.steps[s];
      SCOPED_TRACE(unit_.name + " step " + std::to_string(s) + " op " + std::to_string(step.op));
      if (step.backward) {
        backward(step);
      } else {
        forward(unit_.ops[static_cast<size_t>(step.op)]);
      }
    }
  }

  void expect_output() { expect(value(unit_.output), bytes(unit_.output), {unit_.output}, "output"); }
  void expect_retained() {
    for (const ValueId id : retained_.values) expect(value(id), bytes(id), {id}, unit_.values.at(at(id)).name);
  }
  // The gradient of the input stands where that of the output came in.
  void expect_input_gradient() {
    EXPECT_EQ(pass_.gradients[at(unit_.input)].place, Place::kGradient);
    expect({Place::kGradient, 0}, bytes(unit_.input), contributions(unit_.input), "input gradient");
  }

 private:
  using Content = std::set<int>;
  static constexpr int kBoundary = 9999;
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  static int contribution(size_t op, size_t input) { return static_cast<int>(1000 + 10 * op + input); }

  Location value(ValueId id) const { return pass_.values[at(id)]; }
  int64_t bytes(ValueId id) const { return value_bytes(unit_.values[at(id)], dims_); }

  // What the gradient of a value must hold when it is read, from the graph alone.
  Content contributions(ValueId id) const {
    Content content;
    if (id == unit_.output) content.insert(kBoundary);
    for (size_t op = 0; op < unit_.ops.size(); ++op) {
      for (size_t i = 0; i < unit_.ops[op].inputs.size(); ++i) {
        if (unit_.ops[op].inputs[i] != id) continue;
        const bool run = std::any_of(pass_.steps.begin(), pass_.steps.end(),
                                     [&](const Step& s) { return s.backward && s.op == static_cast<int>(op); });
        if (run) {
          content.insert(contribution(op, i));
        } else {
          content.merge(contributions(unit_.ops[op].outputs[0]));
        }
      }
    }
    return content;
  }

  void write(const Location& to, int64_t size, const Content& content) {
    ASSERT_NE(to.place, Place::kNowhere);
    ASSERT_EQ(to.offset % kLine, 0);
    if (to.place == Place::kWorkspace) {
      ASSERT_LE(to.offset + size, pass_.workspace_bytes);
    }
    if (to.place == Place::kRetained) {
      ASSERT_LE(to.offset + size, retained_.bytes);
    }
    for (int64_t line = to.offset; line < to.offset + size; line += kLine) memory_[{to.place, line}] = content;
  }

  void expect(const Location& from, int64_t size, const Content& content, const std::string& what) {
    ASSERT_NE(from.place, Place::kNowhere) << what;
    for (int64_t line = from.offset; line < from.offset + size; line += kLine) {
      const auto it = memory_.find({from.place, line});
      ASSERT_TRUE(it != memory_.end()) << what << " was never written";
      ASSERT_EQ(it->second, content) << what;
    }
  }

  void expect_value(ValueId id) { expect(value(id), bytes(id), {id}, unit_.values[at(id)].name); }

  void forward(const Op& op) {
    for (const ValueId id : op.inputs) expect_value(id);
    for (const ValueId id : op.outputs) write(value(id), bytes(id), {id});
    for (const ValueId id : op.inputs) expect_value(id);  // no output lies on an input
    for (const ValueId id : op.outputs) expect_value(id);
  }

  void backward(const Step& step) {
    const Op& op = unit_.ops[static_cast<size_t>(step.op)];
    const Reads reads = op.kind->backward_reads();
    const auto expect_reads = [&] {
      for (const int i : reads.inputs) expect_value(op.inputs[static_cast<size_t>(i)]);
      for (const int i : reads.outputs) expect_value(op.outputs[static_cast<size_t>(i)]);
    };
    const auto expect_output_gradient = [&] {
      const ValueId id = op.outputs[0];  // statistics have no gradient
      expect(pass_.gradients[at(id)], bytes(id), contributions(id), "gradient of " + unit_.values[at(id)].name);
    };
    expect_reads();
    if (!op.outputs.empty()) expect_output_gradient();
    ASSERT_EQ(step.add_input_gradient.size(), op.inputs.size());
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Location to = pass_.gradients[at(op.inputs[i])];
      Content content;
      if (step.add_input_gradient[i]) {
        content = memory_[{to.place, to.offset}];
        ASSERT_FALSE(content.empty()) << "adds to nothing";
        expect(to, bytes(op.inputs[i]), content, "gradient to add to");
      }
      content.insert(contribution(static_cast<size_t>(step.op), i));
      write(to, bytes(op.inputs[i]), content);
    }
    expect_reads();
    if (!op.outputs.empty()) expect_output_gradient();
  }

  const Unit& unit_;
  const Pass& pass_;
  const RetainedSet& retained_;
  Dims dims_;
  std::map<std::pair<Place, int64_t>, Content> memory_;
};

std::vector<ValueId> random_values(const Unit& unit, uint64_t seed) {
  const CounterRng rng(seed, 2);
  const double share = rng.uniform(1000);
  std::vector<ValueId> values;
  for (size_t i = 0; i < unit.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (id != unit.input && id != unit.output && rng.uniform(i) < share) values.push_back(id);
  }
  return values;
}

// True when backward finds everything after running `ops` on what is retained.
bool suffices(const Unit& unit, const std::vector<ValueId>& retained, const std::vector<int>& ops) {
  std::set<ValueId> available(retained.begin(), retained.end());
  available.insert(unit.input);
  const auto have = [&](ValueId id) { return available.count(id) > 0; };
  for (const int i : ops) {
    const Op& op = unit.ops[static_cast<size_t>(i)];
    if (!std::all_of(op.inputs.begin(), op.inputs.end(), have)) return false;
    available.insert(op.outputs.begin(), op.outputs.end());
  }
  for (const Op& op : unit.ops) {
    const Reads reads = op.kind->backward_reads();
    for (const int i : reads.inputs) {
      if (!have(op.inputs[static_cast<size_t>(i)])) return false;
    }
    for (const int i : reads.outputs) {
      if (!have(op.outputs[static_cast<size_t>(i)])) return false;
    }
  }
  return true;
}

int op_of(const Unit& unit, const std::string& value) { return unit.producer(values_by_name(unit, {value})[0]); }

TEST(RecomputeSlice, SufficesAndIsTheLeast) {
  const Unit layer = testing::toy_layer(0);
  std::set<std::vector<int>> different;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto retained = random_values(layer, seed);
    const auto slice = recompute_slice(layer, retained);
    EXPECT_TRUE(std::is_sorted(slice.begin(), slice.end()));
    EXPECT_TRUE(suffices(layer, retained, slice));
    for (size_t i = 0; i < slice.size(); ++i) {
      auto without = slice;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(suffices(layer, retained, without)) << "op " << slice[i] << " was run for nothing";
    }
    different.insert(slice);
  }
  EXPECT_GT(different.size(), 20u);
}

TEST(RecomputeSlice, NeverRunsTheLastGemmAgain) {
  const Unit layer = testing::toy_layer(0);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_THAT(recompute_slice(layer, random_values(layer, seed)),
                ::testing::Not(::testing::Contains(op_of(layer, "down.out"))));
  }
  const auto all = recompute_slice(layer, {});
  EXPECT_EQ(all.size(), layer.ops.size() - 2);  // all but the last GEMM and the last add
}

TEST(RecomputeSlice, IsEmptyWhenEverythingIsThere) {
  const Unit layer = testing::toy_layer(0);
  EXPECT_THAT(recompute_slice(layer, backward_needs(layer)), IsEmpty());
  for (const ValueId id : backward_needs(layer)) {
    auto without = backward_needs(layer);
    without.erase(std::find(without.begin(), without.end(), id));
    EXPECT_FALSE(recompute_slice(layer, without).empty()) << layer.values[static_cast<size_t>(id)].name;
  }
}

TEST(RecomputeSlice, CostlyValuesLeaveOnlyRowOps) {
  const Unit layer = testing::toy_layer(0);
  const auto keep = costly_to_recompute(layer);
  for (const int op : recompute_slice(layer, keep)) {
    EXPECT_TRUE(layer.ops[static_cast<size_t>(op)].kind->cheap_to_recompute());
  }
  for (const ValueId id : keep) {  // and each of them is needed for that
    auto without = keep;
    without.erase(std::find(without.begin(), without.end(), id));
    const auto slice = recompute_slice(layer, without);
    EXPECT_TRUE(std::any_of(slice.begin(), slice.end(),
                            [&](int op) { return !layer.ops[static_cast<size_t>(op)].kind->cheap_to_recompute(); }));
  }
}

TEST(Pass, ForwardLeavesOutputAndRetained) {
  const Unit layer = testing::toy_layer(0);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (const int64_t tokens : {1, 37}) {
      const Dims dims{tokens, tokens, seed % 2 == 0 ? 2 : 4};
      const RetainedSet retained = retained_set(layer, random_values(layer, seed), dims);
      const Pass pass = forward_pass(layer, retained, dims);
      PassSimulator simulator(layer, pass, retained, dims);
      simulator.put_input();
      simulator.run();
      simulator.expect_output();
      simulator.expect_retained();
    }
  }
}

TEST(Pass, BackwardReadsWhatIsThereAndLeavesTheInputGradientInPlace) {
  const Unit layer = testing::toy_layer(0);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (const bool whole : {false, true}) {
      const int64_t tokens = 1 + 5 * static_cast<int64_t>(seed % 8);
      const Dims dims{tokens, tokens, 2};
      const RetainedSet retained = retained_set(layer, random_values(layer, seed), dims);
      const Pass pass = backward_pass(layer, retained, dims, whole);
      const auto runs = static_cast<size_t>(pass.recompute_steps);
      EXPECT_EQ(runs, whole ? layer.ops.size() : recompute_slice(layer, retained.values).size());
      for (size_t s = 0; s < pass.steps.size(); ++s) EXPECT_EQ(pass.steps[s].backward, s >= runs);
      PassSimulator simulator(layer, pass, retained, dims);
      simulator.put_input();
      simulator.put_retained();
      simulator.put_output_gradient();
      simulator.run();
      simulator.expect_input_gradient();
    }
  }
}

TEST(Pass, ResidualAddsRunNoBackward) {
  const Unit layer = testing::toy_layer(0);
  const Pass pass = backward_pass(layer, {}, {8, 8, 2}, false);
  for (const Step& step : pass.steps) {
    if (step.backward) {
      EXPECT_FALSE(layer.ops[static_cast<size_t>(step.op)].kind->passes_gradient_through());
    }
  }
  for (const char* name : {"input", "residual1.out", "o.out", "down.out", "residual2.out"}) {
    const Location& gradient = pass.gradients[static_cast<size_t>(values_by_name(layer, {name})[0])];
    EXPECT_EQ(gradient.place, Place::kGradient) << name;
    EXPECT_EQ(gradient.offset, 0) << name;
  }
}

TEST(Pass, LossAndEmbedding) {
  for (const bool tied : {false, true}) {
    const Unit head = testing::toy_head(tied);
    const Dims dims{9, 9, 2};
    const Pass loss = loss_pass(head, dims);
    PassSimulator simulator(head, loss, {}, dims);
    simulator.put_input();
    simulator.run();
    simulator.expect_input_gradient();
    int losses = 0;
    for (const Step& step : loss.steps) {
      if (head.ops[static_cast<size_t>(step.op)].kind->is_loss()) losses += step.backward ? 1 : 100;
    }
    EXPECT_EQ(losses, 1);
  }
  const Unit embedding = testing::toy_embedding();
  const Pass backward = backward_pass(embedding, {}, {9, 9, 2}, true);
  EXPECT_EQ(backward.recompute_steps, 0);
  ASSERT_EQ(backward.steps.size(), 1u);
  EXPECT_EQ(backward.gradients[static_cast<size_t>(embedding.output)].place, Place::kGradient);
}

// A workspace no larger than the sum of what it holds, and smaller than without reuse.
TEST(Pass, WorkspaceIsReused) {
  const Unit layer = testing::toy_layer(0);
  const Dims dims{64, 64, 2};
  int64_t sum = 0;
  for (const ValueSpec& value : layer.values) sum += value_bytes(value, dims);
  EXPECT_LT(forward_pass(layer, {}, dims).workspace_bytes, sum / 2);
  EXPECT_LT(backward_pass(layer, {}, dims, false).workspace_bytes, 2 * sum);
}

TEST(RetainedSet, TakesEachValueOnceAndNoBoundary) {
  const Unit layer = testing::toy_layer(0);
  const Dims dims{3, 3, 2};
  const auto ids = values_by_name(layer, {"gate.out", "q.out", "gate.out", "input", "residual2.out"});
  const RetainedSet set = retained_set(layer, ids, dims);
  EXPECT_EQ(set.values, values_by_name(layer, {"q.out", "gate.out"}));
  EXPECT_EQ(set.bytes, (3 * 24 * 2 + 63) / 64 * 64 + (3 * 40 * 2 + 63) / 64 * 64);
}

TEST(ValuesByName, UnknownNameListsTheKnown) {
  const Unit layer = testing::toy_layer(7);
  try {
    values_by_name(layer, {"gate.out", "gaet.out"});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer.7"));
    EXPECT_THAT(error.what(), HasSubstr("gaet.out"));
    EXPECT_THAT(error.what(), HasSubstr("residual1.out"));
  }
}

// Units in which sharing the gradient's memory through an add would give wrong sums must be refused.
TEST(Pass, RefusesSharedGradientsThatWouldMix) {
  const Dims dims{4, 4, 2};
  {  // lin3's contribution to a would be added to b's and x's gradient as well
    UnitBuilder u("fork", UnitKind::kLayer, "");
    const ValueId x = u.boundary(8);
    const ValueId a = u.add(toy_linear(8, 8), {x}, "a")[0];
    const ValueId b = u.add(toy_linear(8, 8), {x}, "b")[0];
    const ValueId d = u.add(toy_linear(8, 8), {a}, "d")[0];
    const ValueId e = u.add(toy_add(8), {a, b}, "e")[0];
    const Unit unit = u.finish(u.add(toy_add(8), {e, d}, "out")[0]);
    EXPECT_THROW(backward_pass(unit, {}, dims, false), std::logic_error);
  }
  {  // the same with the unit's input instead of b
    UnitBuilder u("input fork", UnitKind::kLayer, "");
    const ValueId x = u.boundary(8);
    const ValueId a = u.add(toy_linear(8, 8), {x}, "a")[0];
    const ValueId d = u.add(toy_norm(8), {a}, "d")[0];
    const ValueId f = u.add(toy_linear(8, 8), {d}, "f")[0];
    const ValueId e = u.add(toy_add(8), {a, x}, "e")[0];
    const Unit unit = u.finish(u.add(toy_add(8), {e, f}, "out")[0]);
    EXPECT_THROW(backward_pass(unit, {}, dims, false), std::logic_error);
  }
  {  // x + f and then + x again: the inner add would read the gradient that it doubles
    UnitBuilder u("twice", UnitKind::kLayer, "");
    const ValueId x = u.boundary(8);
    const ValueId f = u.add(toy_linear(8, 8), {x}, "f")[0];
    const ValueId y = u.add(toy_add(8), {x, f}, "y")[0];
    const Unit unit = u.finish(u.add(toy_add(8), {y, x}, "out")[0]);
    EXPECT_THROW(backward_pass(unit, {}, dims, false), std::logic_error);
  }
  {  // no way for the gradient from end to end
    UnitBuilder u("no residual", UnitKind::kLayer, "");
    const ValueId x = u.boundary(8);
    const Unit unit = u.finish(u.add(toy_linear(8, 8), {x}, "a")[0]);
    EXPECT_THROW(backward_pass(unit, {}, dims, false), std::logic_error);
  }
}

TEST(WorkOf, AddsUpTheSteps) {
  const Unit layer = testing::toy_layer(0);
  const Dims dims{10, 10, 2};
  const Pass forward = forward_pass(layer, {}, dims), backward = backward_pass(layer, {}, dims, false);
  const double gemm = 2.0 * 10 * (24 * 24 + 2 * 24 * 8 + 24 * 24 + 3 * 24 * 40) + 64 * 10;
  EXPECT_DOUBLE_EQ(work_of(layer, forward, dims, 0, static_cast<int>(forward.steps.size())).flops, gemm);
  const int recompute = backward.recompute_steps, steps = static_cast<int>(backward.steps.size());
  EXPECT_DOUBLE_EQ(work_of(layer, backward, dims, 0, recompute).flops, gemm - 2.0 * 10 * 40 * 24);
  EXPECT_DOUBLE_EQ(work_of(layer, backward, dims, recompute, steps).flops, 2 * gemm);
}

TEST(Graph, CountsParameters) {
  const Graph untied = toy_graph(2, false), tied = toy_graph(2, true);
  EXPECT_EQ(untied.parameter_count() - tied.parameter_count(), 40 * 24);
  EXPECT_EQ(untied.matmul_parameters(), tied.matmul_parameters());
  for (const Unit& unit : untied.units) {  // blocks: aligned, in order, without overlap
    int64_t end = 0;
    for (const Parameter& p : unit.params) {
      EXPECT_EQ(p.offset % 64, 0);
      EXPECT_GE(p.offset, end);
      end = p.offset + p.elements;
    }
    EXPECT_LE(end, unit.block_elements);
  }
}

}  // namespace
}  // namespace lazytrain::graph
