#include "train/data.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/chat_template.h"
#include "text/dataset.h"
#include "text/token_cache.h"
#include "text/tokenizer.h"

namespace lazytrain::train {
namespace {

// The reader tells a list from lines by itself; a stated format must be what the file has.
void check_format(const std::string& format, const std::filesystem::path& file) {
  if (format == "auto") return;
  const MappedFile map(file);
  const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  const auto first = text.find_first_of("[{");
  const bool list = first != std::string_view::npos && text[first] == '[';
  if (list != (format == "json")) {
    throw UsageError("data.format: {} is asked for, {} holds {}: set data.format to {}, or leave it out", format,
                     file.string(), list ? "one JSON list" : "a JSON object a line", list ? "json" : "jsonl");
  }
}

text::PreparedData prepare(const RunConfig& config, const std::filesystem::path& file, ThreadPool& pool) {
  check_format(config.data.format, file);
  const text::Tokenizer tokenizer = text::Tokenizer::load(config.model);
  std::optional<text::ChatTemplate> chat;
  if (config.data.chat_template == "chat") {
    chat = text::ChatTemplate::load(config.model);
    if (!chat)
      spdlog::info("{} has no chat template: prompt and response are taken as they are", config.model.string());
  }
  const text::DataOptions options{.file = file,
                                  .fields = {config.data.prompt, config.data.response},
                                  .seq = config.seq,
                                  .cache_folder = config.data.cache};
  return text::prepare_data(options, text::encoder_of(tokenizer), chat ? &*chat : nullptr, pool);
}

}  // namespace

void check_sources(const RunConfig& config) {
  text::Tokenizer::load(config.model);
  if (config.data.chat_template == "chat") text::ChatTemplate::load(config.model);
  for (const std::filesystem::path& file : {config.data.train, config.data.eval}) {
    if (file.empty()) continue;
    check_format(config.data.format, file);
    const text::Dataset data(file, {config.data.prompt, config.data.response});
  }
}

std::vector<ops::Tokens> StepBatch::views() const {
  std::vector<ops::Tokens> list;
  for (const text::TokenBatch& batch : micro_batches) {
    list.push_back({.count = static_cast<int64_t>(batch.ids.size()),
                    .ids = batch.ids,
                    .positions = batch.positions,
                    .targets = batch.targets,
                    .doc_starts = batch.doc_starts,
                    .loss_scale = 1.0 / static_cast<double>(targets)});
  }
  return list;
}

DataSource::DataSource(const RunConfig& config, const std::filesystem::path& file, bool pack, bool shuffle,
                       const graph::Graph& graph, ThreadPool& pool)
    : seq_(config.seq),
      data_(prepare(config, file, pool)),
      rows_(text::make_rows(data_.samples, config.seq, pack)),
      order_(config.seed, static_cast<int64_t>(rows_.size()), shuffle) {
  const auto& tokens = data_.samples.tokens;
  const auto largest = std::max_element(tokens.begin(), tokens.end());
  if (largest != tokens.end() && *largest >= graph.vocabulary) {
    throw UsageError(
        "{}: the tokenizer gives id {}, the model's vocabulary_size is {}: tokenizer and model do not belong together",
        config.model.string(), *largest, graph.vocabulary);
  }
}

double DataSource::fill() const { return text::fill_ratio(data_.samples, rows_, seq_); }

std::string DataSource::fingerprint() const {
  return hash_hex(std::as_bytes(std::span(data_.samples.tokens))) +
         hash_hex(std::as_bytes(std::span(data_.samples.is_target)));
}

StepBatch DataSource::step(int64_t step, int64_t batch, int64_t micro_batch) {
  const std::vector<int64_t> rows = order_.of_step(step, batch);
  StepBatch result;
  for (int64_t begin = 0; begin < batch; begin += micro_batch) {
    const auto count = static_cast<size_t>(std::min(micro_batch, batch - begin));
    append(result, std::span(rows).subspan(static_cast<size_t>(begin), count));
  }
  if (result.targets == 0)
    throw RunError("step {}: none of the tokens of rows {} is a target", step, fmt::join(rows, ", "));
  return result;
}

StepBatch DataSource::rows_at(int64_t begin, int64_t count) const {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), begin);
  StepBatch result;
  append(result, rows);
  return result;
}

void DataSource::append(StepBatch& batch, std::span<const int64_t> rows) const {
  batch.micro_batches.push_back(text::make_batch(data_.samples, rows_, rows));
  batch.tokens += static_cast<int64_t>(batch.micro_batches.back().ids.size());
  batch.targets += batch.micro_batches.back().target_count;
}

}  // namespace lazytrain::train
