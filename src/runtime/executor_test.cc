#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "runtime/run_record.h"
#include "runtime/testing.h"

namespace lazytrain::runtime {
namespace {

using testing::Batch;
using testing::compiled;
using testing::expect_alive;
using testing::expect_equal;
using testing::gradients_of;
using testing::random_batch;
using testing::randomize;
using testing::Record;
using testing::relative_error;
using testing::Running;
using testing::state_bytes;
using testing::tiny_llama;
using testing::tiny_qwen2;
using testing::tokens_of;
using testing::update_number;

constexpr int64_t kSeq = 19;

Record train(const graph::Graph& graph, const plan::Policy& policy, DType compute, int threads) {
  ThreadPool pool(threads);
  return testing::record(graph, compiled(graph, policy, compute, threads), pool);
}

class PolicyTest : public ::testing::TestWithParam<std::tuple<DType, bool, int>> {};

// The policy never changes the result.
TEST_P(PolicyTest, GivesTheBitsOfResident) {
  const auto [compute, tied, micro_batches] = GetParam();
  // The families alternate, so that each is met with every dtype.
  const bool qwen2 = (micro_batches + (tied ? 1 : 0)) % 2 == 0;
  const graph::Graph graph = model::build_graph(qwen2 ? tiny_qwen2(tied) : tiny_llama(tied));
  // 5 rows in 2 or 3 micro-batches: the last one is smaller.
  const plan::Shape shape{5, micro_batches == 1 ? 5 : micro_batches == 2 ? 3 : 2, kSeq};
  const plan::Policy resident = plan::resident(graph, shape);
  ASSERT_EQ(resident.micro_batches(), micro_batches);
  const Record expected = train(graph, resident, compute, 2);
  expect_alive(expected);
  std::vector<plan::Policy> policies = {plan::megatrain(graph, shape)};
  for (uint64_t seed = 0; seed < 6; ++seed) {
    policies.push_back(plan::testing::random_policy(graph, shape, 100 * static_cast<uint64_t>(micro_batches) + seed));
  }
  std::vector<plan::Policy> met = {resident};
  for (const plan::Policy& policy : policies) {
    for (const plan::Policy& other : met) {  // two equal policies would compare a thing with itself
      ASSERT_NE(plan::testing::renamed(policy, ""), plan::testing::renamed(other, ""));
    }
    met.push_back(policy);
    expect_equal(train(graph, policy, compute, 2), expected, policy.name + " " + to_json(policy).dump());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PolicyTest,
                         ::testing::Combine(::testing::Values(DType::kBF16, DType::kF32), ::testing::Bool(),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& names) {
                           return std::string(name_of(std::get<0>(names.param))) +
                                  (std::get<1>(names.param) ? "Tied" : "Untied") +
                                  std::to_string(std::get<2>(names.param));
                         });

// A graph, its state and an executor of one policy.
struct Trainee {
  Trainee(graph::Graph g, const plan::Shape& shape, DType dtype, int threads = 2)
      : graph(std::move(g)),
        pool(threads),
        run(graph, compiled(graph, plan::megatrain(graph, shape), dtype, threads), pool) {
    randomize(graph, state, 11);
  }
  StepResult step(const Batch& batch, const PendingUpdate* update = nullptr) {
    return run.executor.run_step(tokens_of(batch), update);
  }

  graph::Graph graph;
  ThreadPool pool;
  Running run;
  ModelState& state = run.state;
  Executor& executor = run.executor;
};

TEST(Executor, AccumulatedMicroBatchesAreTheBatch) {
  for (const bool tied : {false, true}) {
    const graph::Graph graph = model::build_graph(tiny_qwen2(tied));
    const plan::Shape whole{4, 4, kSeq}, cut{4, 1, kSeq};
    Trainee a(graph, whole, DType::kF32), b(graph, cut, DType::kF32);
    const StepResult one = a.step(random_batch(graph.vocabulary, whole, 5));
    const StepResult four = b.step(random_batch(graph.vocabulary, cut, 5));
    EXPECT_EQ(one.loss.count, four.loss.count);
    EXPECT_NEAR(one.loss.nll, four.loss.nll, 1e-6 * one.loss.nll);
    EXPECT_LE(relative_error(gradients_of(b.graph, b.state), gradients_of(a.graph, a.state)), 1e-5);
  }
}

TEST(Executor, LossScaleScalesGradientsAndNotTheLoss) {
  const graph::Graph graph = model::build_graph(tiny_llama(false));
  const plan::Shape shape{3, 2, kSeq};
  Trainee a(graph, shape, DType::kF32), b(graph, shape, DType::kF32);
  Batch batch = random_batch(graph.vocabulary, shape, 5);
  const StepResult plain = a.step(batch);
  for (auto& micro : batch) micro.loss_scale *= 4;
  const StepResult scaled = b.step(batch);
  EXPECT_EQ(plain.loss.nll, scaled.loss.nll);
  std::vector<float> expected = gradients_of(a.graph, a.state);
  for (float& g : expected) g *= 4;  // a power of two: exact
  EXPECT_EQ(gradients_of(b.graph, b.state), expected);
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_EQ(scaled.gradients[i].sum.sum_of_squares, 16 * plain.gradients[i].sum.sum_of_squares);
  }
}

TEST(Executor, MaskedMicroBatchAddsNothing) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const graph::Graph graph = model::build_graph(tiny_qwen2(true));
    for (const size_t masked : {size_t{0}, size_t{1}}) {
      Trainee both(graph, {2, 1, kSeq}, compute), one(graph, {1, 1, kSeq}, compute);
      Batch batch = random_batch(graph.vocabulary, {2, 1, kSeq}, 5);
      std::fill(batch[masked].targets.begin(), batch[masked].targets.end(), -1);
      testing::scale_losses(batch);
      const StepResult with = both.step(batch);
      const StepResult without = one.step({batch[1 - masked]});
      EXPECT_EQ(with.loss.nll, without.loss.nll);
      EXPECT_EQ(with.loss.count, without.loss.count);
      EXPECT_EQ(gradients_of(both.graph, both.state), gradients_of(one.graph, one.state));
    }
  }
}

TEST(Executor, SumsOfSquaresAreThoseOfTheStoredGradients) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Trainee t(model::build_graph(tiny_llama(true)), {2, 1, kSeq}, compute);
    const StepResult result = t.step(random_batch(t.graph.vocabulary, {2, 1, kSeq}, 5));
    size_t next = 0;
    testing::each_parameter(t.graph, [&](int u, int p, const graph::Parameter& parameter) {
      ASSERT_LT(next, result.gradients.size());
      const ParameterGradient& g = result.gradients[next++];
      EXPECT_EQ(g.unit, u);
      EXPECT_EQ(g.parameter, p);
      double sum = 0;
      for (int64_t i = 0; i < parameter.elements; ++i) sum += std::pow(testing::gradient(t.state, u, p, i), 2);
      EXPECT_NEAR(g.sum.sum_of_squares, sum, 1e-9 * sum) << parameter.name;
      EXPECT_TRUE(g.sum.finite);
    });
    EXPECT_EQ(next, result.gradients.size());
  }
}

// Passes everything on to another op, and throws where it is told to.
class Faulty final : public ops::CpuOp {
 public:
  struct Switch {
    std::atomic<bool> forward{false}, backward{false};
  };
  Faulty(std::shared_ptr<const graph::OpKind> inner, Switch& fail) : inner_(std::move(inner)), fail_(fail) {}

  std::string_view name() const override { return inner_->name(); }
  std::vector<graph::ValueSpec> outputs() const override { return inner_->outputs(); }
  std::vector<graph::ParameterSpec> parameters() const override { return inner_->parameters(); }
  graph::Work forward_work(const graph::Dims& d) const override { return inner_->forward_work(d); }
  graph::Work backward_work(const graph::Dims& d) const override { return inner_->backward_work(d); }
  graph::Reads backward_reads() const override { return inner_->backward_reads(); }
  bool cheap_to_recompute() const override { return inner_->cheap_to_recompute(); }
  bool is_loss() const override { return inner_->is_loss(); }
  int64_t cpu_scratch_bytes(const graph::Dims& d, int threads) const override {
    return cpu().cpu_scratch_bytes(d, threads);
  }
  void forward(const ops::CpuContext& context, const ops::ForwardArgs& args) const override {
    if (fail_.forward) throw RunError("the forward of {} failed", name());
    cpu().forward(context, args);
  }
  void backward(const ops::CpuContext& context, const ops::BackwardArgs& args) const override {
    if (fail_.backward) throw RunError("the backward of {} failed", name());
    cpu().backward(context, args);
  }

 private:
  const ops::CpuOp& cpu() const { return dynamic_cast<const ops::CpuOp&>(*inner_); }
  std::shared_ptr<const graph::OpKind> inner_;
  Switch& fail_;
};

TEST(Executor, RethrowsWhatAnOpThrewAndRunsOn) {
  struct Case {
    size_t unit;  // 0: the embedding, on the host's lane
    size_t op;
    bool backward;
  };
  for (const Case& c : {Case{0, 0, false}, Case{0, 0, true}, Case{2, 1, false}, Case{2, 1, true}, Case{4, 1, true}}) {
    SCOPED_TRACE("unit " + std::to_string(c.unit) + (c.backward ? " backward" : " forward"));
    const plan::Shape shape{3, 1, kSeq};
    const graph::Graph sound = model::build_graph(tiny_qwen2(true));
    graph::Graph graph = sound;
    Faulty::Switch fail;
    auto& kind = graph.units.at(c.unit).ops.at(c.op).kind;
    kind = std::make_shared<Faulty>(kind, fail);
    Trainee faulty(std::move(graph), shape, DType::kBF16), good(sound, shape, DType::kBF16);
    const Batch batch = random_batch(sound.vocabulary, shape, 5);
    for (int round = 0; round < 2; ++round) {
      (c.backward ? fail.backward : fail.forward) = true;
      EXPECT_THROW(faulty.step(batch), RunError);
      (c.backward ? fail.backward : fail.forward) = false;
      EXPECT_EQ(faulty.step(batch).loss.nll, good.step(batch).loss.nll);
      EXPECT_EQ(gradients_of(faulty.graph, faulty.state), gradients_of(good.graph, good.state));
    }
  }
}

TEST(Executor, UpdateChasedByForwardIsTheUpdateAlone) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const plan::Shape shape{3, 2, kSeq};
    Trainee chased(model::build_graph(tiny_qwen2(true)), shape, compute);
    Trainee alone(model::build_graph(tiny_qwen2(true)), shape, compute);
    for (int64_t step = 1; step <= 3; ++step) {
      const Batch batch = random_batch(chased.graph.vocabulary, shape, static_cast<uint64_t>(step));
      const PendingUpdate update = update_number(step - 1);
      const StepResult a = chased.step(batch, step == 1 ? nullptr : &update);
      if (step > 1) alone.executor.finish_update(update);
      const StepResult b = alone.step(batch);
      EXPECT_EQ(a.loss.nll, b.loss.nll);
      EXPECT_EQ(state_bytes(chased.state), state_bytes(alone.state));
    }
  }
}

TEST(Executor, NoUpdateLeavesTheWeights) {
  const plan::Shape shape{2, 1, kSeq};
  Trainee t(model::build_graph(tiny_llama(false)), shape, DType::kBF16);
  const Batch batch = random_batch(t.graph.vocabulary, shape, 5);
  const double first = t.step(batch).loss.nll;
  const std::vector<std::byte> before = state_bytes(t.state);
  EXPECT_EQ(t.step(batch).loss.nll, first);
  EXPECT_EQ(state_bytes(t.state), before);
}

TEST(Executor, AnyNumberOfThreadsTrains) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const graph::Graph graph = model::build_graph(tiny_qwen2(false));
    const plan::Policy policy = plan::megatrain(graph, {3, 2, kSeq});
    const Record two = train(graph, policy, compute, 2);
    for (const int threads : {1, 3}) {
      const Record other = train(graph, policy, compute, threads);
      expect_alive(other);
      const double tolerance = compute == DType::kF32 ? 1e-4 : 3e-2;
      EXPECT_NEAR(other.losses[0], two.losses[0], tolerance * two.losses[0]);
      EXPECT_LE(relative_error(other.gradients[0], two.gradients[0]), tolerance) << threads << " threads";
    }
  }
}

TEST(Executor, TheSameRunTwiceGivesTheSameBits) {
  const graph::Graph graph = model::build_graph(tiny_qwen2(true));
  const plan::Policy policy = plan::resident(graph, {3, 2, kSeq});
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    expect_equal(train(graph, policy, compute, 2), train(graph, policy, compute, 2), "again");
  }
}

TEST(Executor, MeasuresEveryInstructionAndOp) {
  const plan::Shape shape{3, 2, kSeq};
  Trainee t(model::build_graph(tiny_qwen2(true)), shape, DType::kBF16);
  const StepResult result = t.step(random_batch(t.graph.vocabulary, shape, 5));
  const plan::Program& program = t.executor.program();
  ASSERT_EQ(result.timeline.spans.size(), program.instructions.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Span& span = result.timeline.spans[i];
    EXPECT_EQ(span.instruction, static_cast<int>(i));
    EXPECT_LE(span.start_s, span.end_s);
    EXPECT_LE(span.end_s, result.timeline.step_s);
    for (const int earlier : program.instructions[i].after) {
      EXPECT_LE(result.timeline.spans[static_cast<size_t>(earlier)].end_s, span.start_s);
    }
  }
  EXPECT_EQ(t.executor.profile().at({"attention", true}).calls, 3 * 2);  // layers, micro-batches
  EXPECT_EQ(t.executor.profile().at({"lm_head_loss", true}).calls, 2);
  EXPECT_GT(t.executor.profile().at({"linear", false}).flops, 0);
}

TEST(Executor, RefusesBatchesThatWereNotPlanned) {
  const plan::Shape shape{3, 2, kSeq};
  Trainee t(model::build_graph(tiny_qwen2(true)), shape, DType::kBF16);
  Batch batch = random_batch(t.graph.vocabulary, shape, 5);
  EXPECT_THROW(t.step({batch[0]}), std::logic_error);
  std::swap(batch[0], batch[1]);
  EXPECT_NO_THROW(t.step(batch));  // smaller first
  const Batch larger = random_batch(t.graph.vocabulary, {6, 3, kSeq}, 5);
  EXPECT_THROW(t.step(larger), std::logic_error);
}

// Derivatives of the loss by central differences, against the gradients of the same executor in fp32.
class DifferenceTest : public ::testing::TestWithParam<bool> {};

TEST_P(DifferenceTest, GradientsAreTheSlopesOfTheLoss) {
  const bool tied = GetParam();
  const plan::Shape shape{3, 2, kSeq};
  Trainee t(model::build_graph(tied ? tiny_qwen2(true, 2) : tiny_llama(false, 2)), shape, DType::kF32);
  Batch batch = random_batch(t.graph.vocabulary, shape, 5);
  for (auto& micro : batch) micro.loss_scale = 1;  // the gradient of nll itself
  t.step(batch);
  std::vector<std::vector<float>> gradients;
  testing::each_parameter(t.graph, [&](int u, int p, const graph::Parameter& parameter) {
    gradients.emplace_back();
    for (int64_t i = 0; i < parameter.elements; ++i) gradients.back().push_back(testing::gradient(t.state, u, p, i));
  });
  // The slope of nll when elements move by `direction`.
  const auto slope = [&](int u, int p, const std::vector<double>& direction, double h) {
    std::vector<float> saved;
    for (size_t i = 0; i < direction.size(); ++i) {
      saved.push_back(testing::weight(t.state, u, p, static_cast<int64_t>(i)));
    }
    const auto loss_at = [&](double by) {
      for (size_t i = 0; i < direction.size(); ++i) {
        testing::set_weight(t.state, u, p, static_cast<int64_t>(i), static_cast<float>(saved[i] + by * direction[i]));
      }
      return t.step(batch).loss.nll;
    };
    const double above = loss_at(h), below = loss_at(-h);
    loss_at(0);
    return (above - below) / (2 * h);
  };
  size_t next = 0;
  testing::each_parameter(t.graph, [&](int u, int p, const graph::Parameter& parameter) {
    const std::vector<float>& g = gradients[next++];
    const double norm = std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0));
    const auto largest = static_cast<double>(
        std::abs(*std::max_element(g.begin(), g.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })));
    ASSERT_GT(norm, 0) << parameter.name;
    // Along the gradient the slope is its norm.
    std::vector<double> along(g.begin(), g.end());
    for (double& x : along) x /= norm;
    EXPECT_NEAR(slope(u, p, along, 2e-3), norm, 2e-3 * norm) << parameter.name;
    // Single elements: the signal of a small one drowns in the rounding of fp32, so it is held to the largest.
    const CounterRng rng(3, next);
    for (uint64_t k = 0; k < 3; ++k) {
      const auto i = static_cast<size_t>(rng.below(k, g.size()));
      std::vector<double> one(g.size(), 0);
      one[i] = 1;
      EXPECT_NEAR(slope(u, p, one, 5e-3), g[i], 1e-2 * largest + 5e-3) << parameter.name << "[" << i << "]";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, DifferenceTest, ::testing::Bool(),
                         [](const auto& tied) { return tied.param ? "Qwen2Tied" : "LlamaUntied"; });

}  // namespace
}  // namespace lazytrain::runtime
