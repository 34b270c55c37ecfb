// The training data of a run: samples, rows and the token batches of each step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "ops/op.h"
#include "text/batch.h"
#include "text/packing.h"
#include "text/samples.h"
#include "train/run_config.h"

namespace lazytrain::train {

// What a DataSource would refuse, as far as it shows without reading all rows: the model's tokenizer and template, and
// the format and first row of data.train and data.eval. Throws as DataSource does.
void check_sources(const RunConfig& config);

// The micro-batches of one optimizer step.
struct StepBatch {
  std::vector<text::TokenBatch> micro_batches;
  int64_t tokens = 0;
  int64_t targets = 0;

  // Views for the executor, each target weighing 1 / targets of the whole step. Valid while this lives.
  std::vector<ops::Tokens> views() const;
};

class DataSource {
 public:
  // Tokenises `file` (or reads it from the cache) with the model's own tokenizer and template, and cuts it into rows.
  // Throws InputError for broken data, UsageError when a token id is outside the model's vocabulary.
  DataSource(const RunConfig& config, const std::filesystem::path& file, bool pack, bool shuffle,
             const graph::Graph& graph, ThreadPool& pool);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const text::SampleCounts& counts() const { return data_.counts; }
  double fill() const;
  std::string fingerprint() const;  // of the tokens

  // Step k takes positions (k - 1) * batch ... of the row order. Throws RunError when none of its tokens is a target.
  StepBatch step(int64_t step, int64_t batch, int64_t micro_batch);
  // `count` rows from `begin` on in the order of the file, as one micro-batch.
  StepBatch rows_at(int64_t begin, int64_t count) const;

 private:
  void append(StepBatch& batch, std::span<const int64_t> rows) const;

  int64_t seq_;
  text::PreparedData data_;
  std::vector<text::Row> rows_;
  text::RowOrder order_;
};

}  // namespace lazytrain::train
