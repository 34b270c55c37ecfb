// What the tests of training steps share: tiny models, packed random batches, and runs of which every bit is recorded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/testing.h"
#include "runtime/executor.h"
#include "runtime/model_state.h"

namespace lazytrain::runtime::testing {

// Three layers, grouped heads, QKV biases.
inline model::ModelConfig tiny_qwen2(bool tied, int layers = 3) {
  Json json = parse_json(R"({"model_type": "qwen2", "hidden_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 56, "vocab_size": 61, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"})",
                         "tiny qwen2");
  json["num_hidden_layers"] = layers;
  json["tie_word_embeddings"] = tied;
  return model::parse_config(json, "tiny qwen2");
}

// Matrices of 4,608 parameters and more, as 8-bit moments need them, in several blocks each; the embedding too.
inline model::ModelConfig small_llama(bool tied, int64_t intermediate = 80) {
  Json json = parse_json(R"({"model_type": "llama", "hidden_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 61, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"})",
                         "small llama");
  json["intermediate_size"] = intermediate;
  json["tie_word_embeddings"] = tied;
  return model::parse_config(json, "small llama");
}

// No biases, a head size that is not hidden size / heads.
inline model::ModelConfig tiny_llama(bool tied, int layers = 5) {
  Json json = parse_json(R"({"model_type": "llama", "hidden_size": 40, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 48, "vocab_size": 53, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"})",
                         "tiny llama");
  json["num_hidden_layers"] = layers;
  json["tie_word_embeddings"] = tied;
  return model::parse_config(json, "tiny llama");
}

// Consecutive weights from `first` on.
inline void set_weights(ModelState& state, int unit, int parameter, int64_t first, std::span<const float> values) {
  std::vector<bf16> hi;
  std::vector<int16_t> lo;
  for (const float value : values) {
    const SplitMaster split = split_master(value);
    hi.push_back(split.hi);
    lo.push_back(split.lo);
  }
  state.write(unit, parameter, StateArray::kHi, first, std::as_bytes(std::span(hi)));
  state.write(unit, parameter, StateArray::kLo, first, std::as_bytes(std::span(lo)));
}
inline void set_weight(ModelState& state, int unit, int parameter, int64_t element, float value) {
  set_weights(state, unit, parameter, element, std::span(&value, 1));
}
inline float weight(const ModelState& state, int unit, int parameter, int64_t element) {
  bf16 hi{};
  int16_t lo = 0;
  state.read(unit, parameter, StateArray::kHi, element, std::as_writable_bytes(std::span(&hi, 1)));
  state.read(unit, parameter, StateArray::kLo, element, std::as_writable_bytes(std::span(&lo, 1)));
  return merge_master({hi, lo});
}
inline float gradient(const ModelState& state, int unit, int parameter, int64_t element) {
  bf16 half{};
  float whole = 0;
  const bool rounded = state.gradient_dtype() == DType::kBF16;
  state.read(unit, parameter, StateArray::kGradient, element,
             rounded ? std::as_writable_bytes(std::span(&half, 1)) : std::as_writable_bytes(std::span(&whole, 1)));
  return rounded ? to_float(half) : whole;
}

// Calls f(unit, parameter, description) for every parameter with storage of its own.
template <typename F>
void each_parameter(const graph::Graph& graph, F f) {
  for (size_t u = 0; u < graph.units.size(); ++u) {
    for (size_t p = 0; p < graph.units[u].params.size(); ++p) {
      const graph::Parameter& parameter = graph.units[u].params[p];
      if (!parameter.tied) f(static_cast<int>(u), static_cast<int>(p), parameter);
    }
  }
}

// Random weights large enough that every part of the model matters; norms around 1, biases around 0.
inline void randomize(const graph::Graph& graph, ModelState& state, uint64_t seed) {
  each_parameter(graph, [&](int u, int p, const graph::Parameter& parameter) {
    const CounterRng rng(seed, static_cast<uint64_t>(100 * u + p));
    const bool norm = parameter.init == graph::Init::kOnes;
    std::vector<float> values;
    for (int64_t i = 0; i < parameter.elements; ++i) {
      const double x = rng.normal(static_cast<uint64_t>(i));
      values.push_back(static_cast<float>(norm ? 1 + 0.3 * x : 0.2 * x));
    }
    set_weights(state, u, p, 0, values);
  });
}

struct MicroBatch {
  std::vector<int32_t> ids, positions, targets, doc_starts = {0};
  double loss_scale = 1;

  void add_document(const std::vector<int32_t>& document, const std::vector<int32_t>& next) {
    for (size_t i = 0; i < document.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    ids.insert(ids.end(), document.begin(), document.end());
    targets.insert(targets.end(), next.begin(), next.end());
    doc_starts.push_back(static_cast<int32_t>(ids.size()));
  }
  int64_t counted() const {
    return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
  }
  ops::Tokens tokens() const {
    return {static_cast<int64_t>(ids.size()), ids, positions, targets, doc_starts, loss_scale};
  }
};

using Batch = std::vector<MicroBatch>;

inline std::vector<ops::Tokens> tokens_of(const Batch& batch) {
  std::vector<ops::Tokens> tokens;
  for (const MicroBatch& micro : batch) tokens.push_back(micro.tokens());
  return tokens;
}

inline void scale_losses(Batch& batch) {
  int64_t counted = 0;
  for (const MicroBatch& micro : batch) counted += micro.counted();
  for (MicroBatch& micro : batch) micro.loss_scale = 1 / static_cast<double>(counted);
}

// `rows` rows of at most `seq` tokens, each of up to three documents, put into micro-batches of `micro_batch` rows.
// The rows do not depend on micro_batch.
inline Batch random_batch(int64_t vocabulary, const plan::Shape& shape, uint64_t seed) {
  Batch batch;
  for (int64_t row = 0; row < shape.batch; ++row) {
    if (row % shape.micro_batch == 0) batch.emplace_back();
    const CounterRng rng(seed, static_cast<uint64_t>(row));
    uint64_t draw = 0;
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(rng.below(draw++, static_cast<uint64_t>(bound)));
    };
    int64_t left = shape.seq - (row % 2 == 0 ? 0 : below(shape.seq / 2));
    for (int64_t d = 2; d >= 0 && left > 0; --d) {
      const int64_t length = d == 0 ? left : 1 + below(left);
      left -= length;
      std::vector<int32_t> ids, targets;
      for (int64_t i = 0; i < length; ++i) {
        ids.push_back(static_cast<int32_t>(below(vocabulary)));
        targets.push_back(below(4) == 0 ? -1 : static_cast<int32_t>(below(vocabulary)));
      }
      batch.back().add_document(ids, targets);
    }
  }
  scale_losses(batch);
  return batch;
}

inline plan::Program compiled(const graph::Graph& graph, const plan::Policy& policy, DType compute, int threads) {
  plan::Program program =
      plan::compile(graph, policy, {.compute = compute, .scratch_bytes = [&](const auto& kind, const auto& dims) {
                                      return Executor::scratch_bytes(kind, dims, threads);
                                    }});
  for (const std::string& fault : plan::validate(program)) ADD_FAILURE() << policy.name << ": " << fault;
  return program;
}

// A program's memory, its state, and what runs it.
struct Running {
  Running(const graph::Graph& graph, plan::Program program, ThreadPool& pool, const DiskOptions* disk = nullptr,
          const ExecutorOptions& options = {}, std::unique_ptr<DeviceMemory> device = nullptr)
      : memory(TierMemory::of(program, disk, std::move(device))),
        state(graph, program.gradient, program.state, memory, program.moments),
        executor(graph, std::move(program), memory, pool, options) {}

  TierMemory memory;
  ModelState state;
  Executor executor;
};

// Every stored gradient, weight and moment, parameter after parameter wherever they lie: compared as bytes.
inline std::vector<std::byte> state_bytes(const ModelState& state) {
  using enum StateArray;
  std::vector<std::byte> all;
  each_parameter(state.graph(), [&](int u, int p, const graph::Parameter&) {
    for (const StateArray array : {kHi, kLo, kMoment1, kMoment2, kScales, kGradient}) {
      state.visit(u, p, array,
                  [&](std::span<const std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
    }
  });
  return all;
}

// Every gradient, parameter after parameter.
inline std::vector<float> gradients_of(const graph::Graph& graph, const ModelState& state) {
  std::vector<float> all;
  each_parameter(graph, [&](int u, int p, const graph::Parameter& parameter) {
    const size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(parameter.elements));
    if (state.gradient_dtype() == DType::kF32) {
      state.read(u, p, StateArray::kGradient, 0, std::as_writable_bytes(std::span(all).subspan(begin)));
      return;
    }
    std::vector<bf16> rounded(static_cast<size_t>(parameter.elements));
    state.read(u, p, StateArray::kGradient, 0, std::as_writable_bytes(std::span(rounded)));
    std::transform(rounded.begin(), rounded.end(), all.begin() + static_cast<std::ptrdiff_t>(begin), to_float);
  });
  return all;
}

// rms(actual - expected) / rms(expected).
inline double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace lazytrain::runtime::testing
