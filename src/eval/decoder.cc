#include "eval/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/lm_head_loss.h"

namespace lazytrain::eval {
namespace {

const ops::Attention* as_attention(const graph::Op& op) { return dynamic_cast<const ops::Attention*>(op.kind.get()); }

void require_known_mixers(const graph::Graph& graph) {
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Op& op : unit.ops) {
      if (op.kind->mixes_tokens() && as_attention(op) == nullptr) {
        throw UsageError("{}: text cannot be generated with models of family {}: there is no cache for '{}'", unit.name,
                         graph.family, op.kind->name());
      }
    }
  }
}

graph::Dims dims_of(const InferenceModel& model, const DecoderLimits& limits) {
  const int64_t tokens = std::max(limits.prefill_tokens, limits.sequences);
  return {.tokens = tokens, .context = tokens, .activation_bytes = size_of(model.compute())};
}

int64_t scratch_bytes(const InferenceModel& model, const DecoderLimits& limits, int threads) {
  const graph::Graph& graph = model.graph();
  int64_t most = runtime::most_scratch_bytes(graph, dims_of(model, limits), threads, false);
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Op& op : unit.ops) {
      if (const auto* attention = as_attention(op); attention != nullptr) {
        most = std::max(most, ops::attention_decode_scratch_bytes(attention->shape(), threads));
      }
    }
  }
  return std::max(most, ops::lm_head_logits_scratch_bytes(limits.sequences, graph.hidden, graph.vocabulary,
                                                          model.compute(), threads));
}

// Rows of a dense matrix that lie one after the other in memory.
void copy_rows(const TensorView& from, const TensorView& to) {
  std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
}

}  // namespace

// The tokens of one call, flat, and the sequences they belong to.
struct Decoder::Batch {
  bool prefill = false;
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> targets;  // none counts
  std::vector<int32_t> starts = {0};
  std::span<const SequenceRows> sequences;  // their lengths include this call's tokens

  void add(std::span<const int32_t> sequence, int64_t first_position) {
    for (size_t i = 0; i < sequence.size(); ++i) {
      ids.push_back(sequence[i]);
      positions.push_back(static_cast<int32_t>(first_position + static_cast<int64_t>(i)));
    }
    targets.resize(ids.size(), -1);
    starts.push_back(static_cast<int32_t>(ids.size()));
  }
  ops::Tokens tokens() const { return {static_cast<int64_t>(ids.size()), ids, positions, targets, starts}; }
  int64_t start(size_t sequence) const { return starts[sequence]; }
  int64_t count(size_t sequence) const { return starts[sequence + 1] - starts[sequence]; }
};

Decoder::Decoder(const InferenceModel& model, ThreadPool& pool, const DecoderLimits& limits)
    : model_(model),
      pool_(pool),
      cache_(model.graph(), limits.cache_rows, model.compute()),
      memory_(model.graph(), dims_of(model, limits), scratch_bytes(model, limits, pool.threads())),
      logits_memory_(limits.sequences * model.graph().vocabulary * size_of(DType::kF32), "logits") {
  require_known_mixers(model.graph());
  int attentions = 0;
  for (int u = 0; u < static_cast<int>(model.graph().units.size()); ++u) {
    const graph::Unit& unit = model.graph().units[static_cast<size_t>(u)];
    bindings_.push_back(memory_.binding(u));
    for (int p = 0; p < static_cast<int>(unit.params.size()); ++p) {
      bindings_.back().params.push_back(model.weight(u, p));
    }
    first_attention_.push_back(attentions);
    attentions += static_cast<int>(
        std::count_if(unit.ops.begin(), unit.ops.end(), [](const auto& op) { return as_attention(op) != nullptr; }));
  }
}

ops::CpuContext Decoder::context(const ops::Tokens& tokens) const {
  return {.pool = &pool_, .activation = model_.compute(), .tokens = &tokens, .scratch = memory_.scratch()};
}

TensorView Decoder::prefill(std::span<const std::span<const int32_t>> prompts, std::span<SequenceRows> sequences) {
  Batch batch;
  batch.prefill = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    batch.add(prompts[i], 0);
    sequences[i].length = static_cast<int64_t>(prompts[i].size());
  }
  batch.sequences = sequences;
  return logits(batch);
}

TensorView Decoder::decode(std::span<const int32_t> ids, std::span<SequenceRows> sequences) {
  Batch batch;
  for (size_t i = 0; i < ids.size(); ++i) batch.add(ids.subspan(i, 1), sequences[i].length++);
  batch.sequences = sequences;
  return logits(batch);
}

// All units but the head on all tokens, then the head on the last token of each sequence.
TensorView Decoder::logits(const Batch& batch) {
  const graph::Graph& graph = model_.graph();
  const int head = static_cast<int>(graph.units.size()) - 1;
  for (int u = 0; u < head; ++u) run_unit(u, batch);

  const graph::Unit& unit = graph.units.back();
  const runtime::UnitBinding& binding = bindings_.back();
  const auto count = static_cast<int64_t>(batch.sequences.size());
  const TensorView hidden = dense(binding.input, model_.compute(), batch.tokens().count, graph.hidden);
  Batch last;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const int64_t from = batch.start(i) + batch.count(i) - 1;
    const auto to = static_cast<int64_t>(i);
    if (from != to) copy_rows(hidden.slice_rows(from, 1), hidden.slice_rows(to, 1));
    last.add(std::span(batch.ids).subspan(static_cast<size_t>(from), 1), batch.positions[static_cast<size_t>(from)]);
  }
  const ops::Tokens tokens = last.tokens();
  const ops::CpuContext at = context(tokens);
  const graph::Pass& pass = memory_.pass(head);
  const TensorView out = dense(logits_memory_.at(0), DType::kF32, count, graph.vocabulary);
  for (int s = 0; s < static_cast<int>(pass.steps.size()); ++s) {
    const graph::Op& op = unit.ops[static_cast<size_t>(pass.steps[static_cast<size_t>(s)].op)];
    if (!op.kind->is_loss()) {
      runtime::run_steps(unit, pass, s, s + 1, binding, at, nullptr);
      continue;
    }
    const TensorView n = runtime::value_view(unit, pass, op.inputs.at(0), binding, at);
    ops::lm_head_logits(at, n, binding.params[static_cast<size_t>(op.params.at(0))], out);
  }
  return out;
}

void Decoder::run_unit(int u, const Batch& batch) {
  const graph::Unit& unit = model_.graph().units[static_cast<size_t>(u)];
  const graph::Pass& pass = memory_.pass(u);
  const ops::Tokens tokens = batch.tokens();
  int layer = first_attention_[static_cast<size_t>(u)];
  for (int s = 0; s < static_cast<int>(pass.steps.size()); ++s) {
    const graph::Op& op = unit.ops[static_cast<size_t>(pass.steps[static_cast<size_t>(s)].op)];
    if (as_attention(op) != nullptr) store(u, op, layer, batch);
    if (as_attention(op) == nullptr || batch.prefill) {
      runtime::run_steps(unit, pass, s, s + 1, bindings_[static_cast<size_t>(u)], context(tokens), nullptr);
    } else {
      attend(u, op, layer, batch);
    }
    layer += as_attention(op) != nullptr ? 1 : 0;
  }
}

// Appends the tokens' keys and values to their sequences.
void Decoder::store(int u, const graph::Op& op, int layer, const Batch& batch) {
  const ops::Tokens tokens = batch.tokens();
  const TensorView k = value(u, op.inputs[1], tokens);
  const TensorView v = value(u, op.inputs[2], tokens);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& rows = batch.sequences[i];
    const int64_t count = batch.count(i);
    const int64_t first = rows.first + rows.length - count;
    copy_rows(k.slice_rows(batch.start(i), count), cache_.keys(layer, first, count));
    copy_rows(v.slice_rows(batch.start(i), count), cache_.values(layer, first, count));
  }
}

// One query a sequence against all of its keys.
void Decoder::attend(int u, const graph::Op& op, int layer, const Batch& batch) {
  cached_.clear();
  for (const SequenceRows& rows : batch.sequences) {
    cached_.push_back(
        {cache_.keys(layer, rows.first, rows.length), cache_.values(layer, rows.first, rows.length), rows.length});
  }
  const ops::Tokens tokens = batch.tokens();
  ops::attention_decode(context(tokens), as_attention(op)->shape(), value(u, op.inputs[0], tokens), cached_,
                        value(u, op.outputs[0], tokens));
}

TensorView Decoder::value(int u, graph::ValueId id, const ops::Tokens& tokens) const {
  const auto i = static_cast<size_t>(u);
  return runtime::value_view(model_.graph().units[i], memory_.pass(u), id, bindings_[i], context(tokens));
}

}  // namespace lazytrain::eval
