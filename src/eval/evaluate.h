// Exact match and loss of a model on a data file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "text/dataset.h"

namespace lazytrain::eval {

struct EvalOptions {
  std::filesystem::path model;  // Hugging Face folder
  std::filesystem::path data;
  text::FieldMapping fields = {};
  bool chat_template = true;  // the model's own, when it has one
  DType compute = DType::kBF16;
  int64_t seq = 1024;  // tokens of a sample that the loss counts, as in training; at most the model's context
  int64_t limit = 0;   // rows from the start of the file, 0: all
  int64_t batch = 32;  // sequences generated at a time
  int64_t max_new_tokens = 256;
  std::function<void(int64_t answered, int64_t total)> on_progress = {};
};

struct Question {
  int64_t index = 0;   // of the row
  std::string prompt;  // the user's text; of a conversation the last message before the answer
  std::string completion;
  std::string predicted;  // see Match
  std::string gold;
  bool correct = false;
};

struct EvalResult {
  double exact_match = 0;  // correct / total
  int64_t correct = 0;
  int64_t total = 0;
  double loss = 0;  // mean over the tokens that training on this file would learn
  std::vector<Question> questions;
};

// Greedy completions of every row's prompt, compared with its response (exact_match.h), and the loss of the responses
// with the samples that training would make. A prompt that is empty or fills the context counts as wrong. Throws what
// reading model and data throws; InputError when there is no row or no token to learn.
EvalResult evaluate(const EvalOptions& options, ThreadPool& pool);

// A line a question: {"index", "prompt", "completion", "predicted" (null: no answer), "gold", "correct"}.
std::string to_jsonl(const std::vector<Question>& questions);

}  // namespace lazytrain::eval
