#include "plan/cost.h"

#include <algorithm>

namespace lazytrain::plan {

double update_bytes(double state_bytes) { return 2 + 2 * 4 + 2 * state_bytes; }

double update_seconds(int64_t parameters, int64_t state_bytes, double bandwidth) {
  const auto n = static_cast<double>(parameters);
  return n * update_bytes(static_cast<double>(state_bytes) / std::max(1.0, n)) / bandwidth;
}

double op_seconds(const graph::OpKind& op, const graph::Work& work, const graph::Dims& dims,
                  const hw::Profile& profile) {
  const double rate = op.mixes_tokens() ? profile.attention_rate()
                                        : profile.gemm_rate(static_cast<double>(std::max<int64_t>(1, dims.tokens)));
  return std::max(work.flops / rate, work.bytes / profile.memory_bandwidth);
}

double pass_seconds(const graph::Unit& unit, const graph::Pass& pass, int first_step, int last_step,
                    const graph::Dims& dims, const hw::Profile& profile) {
  double seconds = 0;
  for (int s = first_step; s < last_step; ++s) {
    const auto op = static_cast<size_t>(pass.steps[static_cast<size_t>(s)].op);
    seconds += op_seconds(*unit.ops[op].kind, graph::work_of(unit, pass, dims, s, s + 1), dims, profile);
  }
  return seconds;
}

}  // namespace lazytrain::plan
