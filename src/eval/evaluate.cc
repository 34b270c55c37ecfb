#include "eval/evaluate.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "eval/exact_match.h"
#include "eval/generate.h"
#include "eval/loss.h"
#include "eval/prompt_format.h"
#include "text/encoder.h"
#include "text/samples.h"

namespace lazytrain::eval {
namespace {

// What is asked: the messages before the answer, or a plain prompt; and the reference answer.
struct Exchange {
  Json before = nullptr;
  std::string prompt;
  std::string response;
};

std::string content_of(const Json& message) {
  const auto it = message.find("content");
  return it != message.end() && it->is_string() ? it->get<std::string>() : "";
}

Exchange exchange_of(const text::Record& record) {
  if (record.messages.is_null()) {
    return {Json::array({{{"role", "user"}, {"content", record.prompt}}}), record.prompt, record.response};
  }
  Exchange exchange;
  Json before = Json::array();
  for (const Json& message : record.messages) {  // the last turn of the assistant is the one that counts
    const auto role = message.find("role");
    if (role != message.end() && *role == "assistant") {
      exchange = {before, before.empty() ? "" : content_of(before.back()), content_of(message)};
    }
    before.push_back(message);
  }
  return exchange;
}

// The rows of the file in every form that they are needed in.
struct Rows {
  std::vector<Question> questions;  // gold is the whole reference until it is scored
  std::vector<std::vector<int32_t>> prompts;
  text::TokenSet samples;
};

Rows read_rows(const EvalOptions& options, const PromptFormat& format, int64_t seq) {
  const text::Encoder encoder = text::encoder_of(format.tokenizer());
  text::Dataset data(options.data, options.fields);
  Rows rows;
  bool all_empty = true;
  for (text::Record record; (options.limit == 0 || std::ssize(rows.questions) < options.limit) && data.next(record);) {
    const std::string where = fmt::format("{}: line {}", data.path(), record.line);
    for (text::Sample& sample : text::make_samples(record, encoder, format.chat(), where)) {
      all_empty = all_empty && text::is_empty(sample);
      if (text::truncate(sample, seq)) rows.samples.add(sample);
    }
    Exchange exchange = exchange_of(record);
    rows.prompts.push_back(format.chat() != nullptr ? format.conversation(exchange.before)
                                                    : format.plain(exchange.prompt, false));
    Question& question = rows.questions.emplace_back();
    question.index = std::ssize(rows.questions) - 1;
    question.prompt = std::move(exchange.prompt);
    question.gold = std::move(exchange.response);
  }
  if (rows.samples.count() == 0 && all_empty) {
    throw InputError("{}: the rows are empty: prompt and response hold no text, so there is nothing to measure",
                     data.path());
  }
  if (rows.samples.count() == 0) {
    throw InputError("{}: no row has a token to learn within seq = {}: prompts fill the rows; raise --seq", data.path(),
                     seq);
  }
  return rows;
}

void answer(const EvalOptions& options, const PromptFormat& format, const InferenceModel& model, ThreadPool& pool,
            Rows& rows) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<size_t> asked;  // questions that have a prompt
  for (size_t i = 0; i < rows.prompts.size(); ++i) {
    if (rows.prompts[i].empty()) continue;
    prompts.push_back(std::move(rows.prompts[i]));
    asked.push_back(i);
  }
  GenerateOptions generation{
      .max_new_tokens = options.max_new_tokens, .batch = options.batch, .stop_ids = format.stop_ids()};
  if (options.on_progress) {
    generation.on_end = [&](int64_t ended) { options.on_progress(ended, static_cast<int64_t>(prompts.size())); };
  }
  const std::vector<Generation> completions = generate(model, pool, prompts, generation);
  int64_t too_long = 0;
  for (size_t i = 0; i < completions.size(); ++i) {
    rows.questions[asked[i]].completion = format.tokenizer().decode(completions[i].ids, true);
    too_long += completions[i].ids.empty() && completions[i].reason == StopReason::kContext ? 1 : 0;
  }
  if (too_long > 0) {
    spdlog::warn("{} of {} prompts fill the model's context of {} tokens and count as wrong", too_long,
                 rows.questions.size(), model.graph().max_positions);
  }
}

}  // namespace

EvalResult evaluate(const EvalOptions& options, ThreadPool& pool) {
  if (options.seq < 1) throw UsageError("seq is {}, expected 1 or more", options.seq);
  if (options.limit < 0) throw UsageError("limit is {}, expected 0 (all rows) or more", options.limit);
  const PromptFormat format(options.model, options.chat_template);
  const InferenceModel model(options.model, options.compute, pool);
  if (options.chat_template && format.chat() == nullptr) {
    spdlog::info("{}: the model has no chat template: prompts are plain text", options.model.string());
  }
  Rows rows = read_rows(options, format, std::min(options.seq, model.graph().max_positions));
  EvalResult result;
  const ops::LossSum loss = loss_of(model, pool, rows.samples);
  result.loss = loss.nll / static_cast<double>(loss.count);
  answer(options, format, model, pool, rows);
  for (Question& question : rows.questions) {
    Match match = match_answer(question.completion, question.gold);
    question.predicted = std::move(match.predicted);
    question.gold = std::move(match.gold);
    question.correct = match.correct;
    result.correct += match.correct ? 1 : 0;
  }
  result.questions = std::move(rows.questions);
  result.total = std::ssize(result.questions);
  result.exact_match = static_cast<double>(result.correct) / static_cast<double>(result.total);
  return result;
}

std::string to_jsonl(const std::vector<Question>& questions) {
  std::string lines;
  for (const Question& q : questions) {
    const Json line = {{"index", q.index},
                       {"prompt", q.prompt},
                       {"completion", q.completion},
                       {"predicted", q.predicted.empty() ? Json(nullptr) : Json(q.predicted)},
                       {"gold", q.gold},
                       {"correct", q.correct}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace lazytrain::eval
