// A short run of which every bit is kept, to be compared with the same run under another policy or in other tiers.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/testing.h"

namespace lazytrain::runtime::testing {

inline constexpr optim::AdamWOptions kAdamW = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};

inline PendingUpdate update_number(int64_t number) {
  return {.options = kAdamW, .lr = 0.01, .number = number, .gradient_scale = 0.7};
}

// What a run leaves: two runs are the same when all of it is, bit for bit.
struct Record {
  std::vector<double> losses;
  std::vector<int64_t> counts;
  std::vector<double> sums_of_squares;
  std::vector<std::vector<float>> gradients;  // by step
  std::vector<std::byte> state;               // at the end
};

// Three steps on different batches, the updates of the first two chased by the next forward
// or done in backward as the policy says, then a last update.
inline Record record(const graph::Graph& graph, plan::Program program, ThreadPool& pool,
                     const DiskOptions* disk = nullptr, const ExecutorOptions& options = {},
                     std::unique_ptr<DeviceMemory> device = nullptr) {
  const plan::Policy policy = program.policy;
  Running run(graph, std::move(program), pool, disk, options, std::move(device));
  randomize(graph, run.state, 11);
  Record record;
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = random_batch(graph.vocabulary, {policy.batch, policy.micro_batch, policy.seq},
                                     static_cast<uint64_t>(500 + step));
    const PendingUpdate update = update_number(step);
    const PendingUpdate own = update_number(step + 1);
    const StepResult result = run.executor.run_step(tokens_of(batch), step == 0 ? nullptr : &update,
                                                    policy.update_in_backward ? &own : nullptr);
    record.losses.push_back(result.loss.nll);
    record.counts.push_back(result.loss.count);
    for (const ParameterGradient& g : result.gradients) record.sums_of_squares.push_back(g.sum.sum_of_squares);
    record.gradients.push_back(gradients_of(graph, run.state));
  }
  run.executor.finish_update(update_number(3));
  record.state = state_bytes(run.state);
  return record;
}

inline void expect_alive(const Record& record) {
  for (const double loss : record.losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
  EXPECT_NE(record.losses[0], record.losses[1]);
  for (const auto& gradients : record.gradients) {
    EXPECT_GT(std::count_if(gradients.begin(), gradients.end(), [](float g) { return g != 0; }),
              static_cast<std::ptrdiff_t>(gradients.size() / 2));
  }
}

inline void expect_equal(const Record& actual, const Record& expected, const std::string& what) {
  EXPECT_EQ(actual.losses, expected.losses) << what;
  EXPECT_EQ(actual.counts, expected.counts) << what;
  EXPECT_EQ(actual.sums_of_squares, expected.sums_of_squares) << what;
  for (size_t step = 0; step < expected.gradients.size(); ++step) {
    EXPECT_TRUE(actual.gradients[step] == expected.gradients[step]) << what << ": gradients of step " << step;
  }
  EXPECT_TRUE(actual.state == expected.state) << what << ": state";
}

}  // namespace lazytrain::runtime::testing
