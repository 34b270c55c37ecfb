#include "plan/cost.h"

#include <algorithm>
#include <cmath>

namespace lazytrain::plan {
namespace {

double roofline_seconds(const graph::OpKind& op, const graph::Work& work, int64_t tokens, const hw::Profile& profile) {
  const double rate = op.mixes_tokens() ? profile.attention_rate()
                                        : profile.gemm_rate(static_cast<double>(std::max<int64_t>(1, tokens)));
  return std::max(work.flops / rate, work.bytes / profile.memory_bandwidth);
}

// How unlike two amounts of work are: the logarithms of their ratios.
double distance(const hw::OpSample& sample, const graph::Work& work) {
  const auto ratio = [](double a, double b) { return std::abs(std::log(std::max(1.0, a) / std::max(1.0, b))); };
  return ratio(sample.flops, work.flops) + ratio(sample.bytes, work.bytes);
}

}  // namespace

double update_bytes(double state_bytes) { return 2 + 2 * 4 + 2 * state_bytes; }

double update_seconds(int64_t parameters, int64_t state_bytes, double bandwidth) {
  const auto n = static_cast<double>(parameters);
  return n * update_bytes(static_cast<double>(state_bytes) / std::max(1.0, n)) / bandwidth;
}

double op_seconds(const graph::OpKind& op, bool backward, const graph::Dims& dims, const hw::Profile& profile) {
  const graph::Work work = backward ? op.backward_work(dims) : op.forward_work(dims);
  const hw::OpSample* nearest = nullptr;
  for (const hw::OpSample& sample : profile.ops) {
    if (sample.backward != backward || sample.op != op.name()) continue;
    if (nearest == nullptr || distance(sample, work) < distance(*nearest, work)) nearest = &sample;
  }
  const double seconds = roofline_seconds(op, work, dims.tokens, profile);
  if (nearest == nullptr) return seconds;
  const double then = roofline_seconds(op, {nearest->flops, nearest->bytes}, nearest->tokens, profile);
  return then > 0 ? seconds * (nearest->seconds / then) : seconds;
}

double pass_seconds(const graph::Unit& unit, const graph::Pass& pass, int first_step, int last_step,
                    const graph::Dims& dims, const hw::Profile& profile) {
  double seconds = 0;
  for (int s = first_step; s < last_step; ++s) {
    const graph::Step& step = pass.steps[static_cast<size_t>(s)];
    seconds += op_seconds(*unit.ops[static_cast<size_t>(step.op)].kind, step.backward, dims, profile);
  }
  return seconds;
}

}  // namespace lazytrain::plan
