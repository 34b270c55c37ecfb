#include "eval/sampler.h"

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace lazytrain::eval {
namespace {

// The first of the largest; a NaN anywhere is found too.
size_t largest(std::span<const float> logits) {
  size_t best = 0;
  bool numbers = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    numbers &= !std::isnan(logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (!numbers || !std::isfinite(logits[best])) {
    throw NotFinite(
        "the model's logits are not finite: its weights are broken (training that diverged, or a wrong file)");
  }
  return best;
}

}  // namespace

int32_t Sampler::next(std::span<const float> logits, uint64_t stream, uint64_t position) const {
  const size_t best = largest(logits);
  if (temperature == 0) return static_cast<int32_t>(best);
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - logits[best]) / temperature); };
  double sum = 0;
  for (const float logit : logits) sum += weight(logit);
  const double drawn = CounterRng(seed, stream).uniform(position) * sum;
  double below = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    below += weight(logits[i]);
    if (drawn < below) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best);  // not reached: `below` ends as `sum`, and drawn < sum
}

}  // namespace lazytrain::eval
