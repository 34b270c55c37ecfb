// The loss of a model on prepared samples.
#pragma once

#include "base/thread_pool.h"
#include "eval/inference_model.h"
#include "ops/op.h"
#include "text/samples.h"

namespace lazytrain::eval {

// Sum of the loss over all learnt tokens, every sample a row of its own. Throws UsageError
// when an id is outside the model's vocabulary, RunError when memory is short.
ops::LossSum loss_of(const InferenceModel& model, ThreadPool& pool, const text::TokenSet& samples);

}  // namespace lazytrain::eval
