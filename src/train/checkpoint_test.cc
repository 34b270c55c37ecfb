#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/family.h"
#include "optim/moments.h"
#include "runtime/state_testing.h"
#include "runtime/testing.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

graph::Graph tiny_graph(int layers) {
  const Json config = {{"model_type", "qwen2"},      {"hidden_size", 16},        {"num_hidden_layers", layers},
                       {"num_attention_heads", 2},   {"num_key_value_heads", 1}, {"intermediate_size", 24},
                       {"vocab_size", 31},           {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 64},
                       {"tie_word_embeddings", true}};
  return model::build_graph(model::parse_config(config, "test"));
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : graph_(tiny_graph(1)), state_(graph_, DType::kBF16), checkpoints_(folder_) {
    state_.initialize(5, nullptr);
    runtime::testing::Draws draws(5);
    runtime::testing::each_parameter(graph_, [&](int u, int p, const graph::Parameter& parameter) {
      for (const auto array : {runtime::StateArray::kMoment1, runtime::StateArray::kMoment2}) {
        state_.write(u, p, array, 0, draws.bytes(4 * parameter.elements));
      }
    });
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  TrainerState at(int64_t step) const {
    return {
        .step = step, .updates = step, .tokens = 10 * step, .guard = {}, .model = graph_.fingerprint, .numbers = "n"};
  }
  fs::path step(int64_t n) const { return folder_ / ("step-" + std::to_string(n)); }

  fs::path folder_ = fs::temp_directory_path() / ("checkpoint_test." + std::to_string(::getpid()));
  graph::Graph graph_;
  runtime::ModelState state_;
  CheckpointFolder checkpoints_;
};

TEST_F(CheckpointTest, LoadGivesBackEveryBitOfEveryParameter) {
  checkpoints_.save(at(3), state_, 2);
  runtime::ModelState loaded(graph_, DType::kBF16);
  const TrainerState trainer = CheckpointFolder::load(*checkpoints_.newest(), loaded);
  EXPECT_EQ(trainer.step, 3);
  EXPECT_EQ(trainer.tokens, 30);
  for (int u = 0; u < 3; ++u) {
    for (size_t p = 0; p < graph_.units[static_cast<size_t>(u)].params.size(); ++p) {
      const auto n = static_cast<size_t>(graph_.units[static_cast<size_t>(u)].params[p].elements);
      const auto a = state_.arrays(u, static_cast<int>(p)), b = loaded.arrays(u, static_cast<int>(p));
      EXPECT_EQ(std::memcmp(a.hi, b.hi, 2 * n), 0);
      EXPECT_EQ(std::memcmp(a.lo, b.lo, 2 * n), 0);
      EXPECT_EQ(std::memcmp(a.m, b.m, 4 * n), 0);
      EXPECT_EQ(std::memcmp(a.v, b.v, 4 * n), 0);
    }
  }
}

// All that a checkpoint holds of a state.
std::vector<std::vector<std::byte>> saved_of(const runtime::ModelState& state) {
  using enum runtime::StateArray;
  std::vector<std::vector<std::byte>> all;
  runtime::testing::each_parameter(state.graph(), [&](int u, int p, const graph::Parameter&) {
    for (const auto array : {kHi, kLo, kMoment1, kMoment2, kScales}) {
      all.push_back(runtime::testing::array_bytes(state, u, p, array));
    }
  });
  return all;
}

TEST_F(CheckpointTest, IsTheSameFileWhereverTheStateLies) {
  using runtime::testing::kAllTiers;
  using runtime::testing::kDiskOnly;
  checkpoints_.save(at(3), state_, 1);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const auto places =
        runtime::testing::random_places(graph_, DType::kBF16, seed % 2 == 0 ? kDiskOnly : kAllTiers, seed);
    runtime::testing::PlacedState placed(graph_, DType::kBF16, places);
    EXPECT_EQ(CheckpointFolder::load(step(3), *placed).step, 3);
    EXPECT_TRUE(saved_of(*placed) == saved_of(state_));
    const fs::path other = folder_ / "other";
    CheckpointFolder(other).save(at(3), *placed, 1);
    for (const char* file : {"state.safetensors", "trainer.json", "COMPLETE"}) {
      EXPECT_TRUE(read_file(step(3) / file, 1 << 20) == read_file(other / "step-3" / file, 1 << 20)) << file;
    }
    runtime::ModelState loaded(graph_, DType::kBF16);
    CheckpointFolder::load(other / "step-3", loaded);
    EXPECT_TRUE(saved_of(loaded) == saved_of(state_));
    fs::remove_all(other);
  }
}

// Moments as updates leave them, in the state's formats.
void fill_moments(runtime::ModelState& state, uint64_t seed) {
  using enum runtime::StateArray;
  runtime::testing::each_parameter(state.graph(), [&](int u, int p, const graph::Parameter& parameter) {
    const CounterRng rng(seed, static_cast<uint64_t>(100 * u + p));
    std::vector<float> m, v;
    for (int64_t i = 0; i < parameter.elements; ++i) {
      m.push_back(static_cast<float>(rng.normal(static_cast<uint64_t>(i))));
      v.push_back(m.back() * m.back() + 1e-3f);
    }
    const optim::MomentFormat format = state.format(u, p);
    if (format.kind == optim::StateKind::kFp32) {
      state.write(u, p, kMoment1, 0, std::as_bytes(std::span(m)));
      state.write(u, p, kMoment2, 0, std::as_bytes(std::span(v)));
      return;
    }
    std::vector<int8_t> m_codes(m.size());
    std::vector<uint8_t> v_codes(m.size());
    std::vector<float> scales(static_cast<size_t>(state.elements(u, p, kScales)));
    optim::quantize_moments(m.data(), v.data(), {m_codes.data(), v_codes.data(), scales.data(), format.block},
                            parameter.elements, nullptr);
    state.write(u, p, kMoment1, 0, std::as_bytes(std::span(m_codes)));
    state.write(u, p, kMoment2, 0, std::as_bytes(std::span(v_codes)));
    state.write(u, p, kScales, 0, std::as_bytes(std::span(scales)));
  });
}

// What load() logs.
std::string log_of_load(const fs::path& checkpoint, runtime::ModelState& state) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  CheckpointFolder::load(checkpoint, state);
  spdlog::set_default_logger(before);
  return log.str();
}

class EightBitCheckpointTest : public CheckpointTest {
 protected:
  // The larger matrices are more than are converted at a time.
  EightBitCheckpointTest() : small_(model::build_graph(runtime::testing::small_llama(true, 12'000))) {}
  TrainerState of_small() const {
    TrainerState trainer = at(3);
    trainer.model = small_.fingerprint;
    return trainer;
  }
  graph::Graph small_;
};

TEST_F(EightBitCheckpointTest, HoldsTheStateAsItIs) {
  for (const char* kind : {"8bit", "8bit:4096+embedding", "hybrid:0.4"}) {
    SCOPED_TRACE(kind);
    runtime::ModelState state(small_, DType::kBF16, kind), loaded(small_, DType::kBF16, kind);
    state.initialize(3, nullptr);
    fill_moments(state, 8);
    checkpoints_.save(of_small(), state, 1);
    EXPECT_EQ(log_of_load(step(3), loaded), "");
    EXPECT_TRUE(saved_of(loaded) == saved_of(state));
    const auto places = runtime::testing::random_places(small_, DType::kBF16, runtime::testing::kAllTiers, 4, kind);
    runtime::testing::PlacedState placed(small_, DType::kBF16, places);
    CheckpointFolder::load(step(3), *placed);
    EXPECT_TRUE(saved_of(*placed) == saved_of(state));
    CheckpointFolder(folder_ / "other").save(of_small(), *placed, 1);
    EXPECT_TRUE(read_file(step(3) / "COMPLETE", 1 << 20) == read_file(folder_ / "other/step-3/COMPLETE", 1 << 20));
    fs::remove_all(folder_);
  }
}

TEST_F(EightBitCheckpointTest, IsConvertedWithALineThatSaysSo) {
  runtime::ModelState plain(small_, DType::kBF16), small(small_, DType::kBF16, "8bit");
  plain.initialize(3, nullptr);
  fill_moments(plain, 8);
  checkpoints_.save(of_small(), plain, 1);
  const std::string line = log_of_load(step(3), small);
  EXPECT_THAT(line, AllOf(HasSubstr("saved as fp32 is converted to this run's 8bit:256"), HasSubstr("14 parameters")));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  runtime::ModelState expected(small_, DType::kBF16, "8bit");
  expected.initialize(3, nullptr);
  fill_moments(expected, 8);  // draws the same numbers and quantises them
  EXPECT_TRUE(saved_of(small) == saved_of(expected));

  // Back to fp32, and from there the same codes again.
  CheckpointFolder other(folder_ / "other");
  other.save(of_small(), small, 1);
  runtime::ModelState back(small_, DType::kBF16);
  EXPECT_THAT(log_of_load(folder_ / "other/step-3", back),
              HasSubstr("saved as 8bit:256 is converted to this run's fp32"));
  EXPECT_FALSE(saved_of(back) == saved_of(plain));
  fs::remove_all(folder_);
  checkpoints_.save(of_small(), back, 1);
  runtime::ModelState again(small_, DType::kBF16, "8bit");
  CheckpointFolder::load(step(3), again);
  EXPECT_TRUE(saved_of(again) == saved_of(small));
}

TEST_F(EightBitCheckpointTest, ExportTakesTheWeightsAlone) {
  runtime::ModelState state(small_, DType::kBF16, "8bit"), loaded(small_, DType::kBF16);
  state.initialize(3, nullptr);
  fill_moments(state, 8);
  checkpoints_.save(of_small(), state, 1);
  CheckpointFolder::load(step(3), loaded, CheckpointFolder::Take::kWeights);
  runtime::ModelState expected(small_, DType::kBF16);
  expected.initialize(3, nullptr);
  EXPECT_TRUE(saved_of(loaded) == saved_of(expected));
}

TEST_F(EightBitCheckpointTest, ScalesThatNoUpdateLeavesAreRefused) {
  runtime::ModelState state(small_, DType::kBF16, "8bit"), loaded(small_, DType::kBF16, "8bit");
  fill_moments(state, 8);
  const float bad = std::numeric_limits<float>::infinity();
  state.write(1, 1, runtime::StateArray::kScales, 7, std::as_bytes(std::span(&bad, 1)));
  checkpoints_.save(of_small(), state, 1);
  try {
    CheckpointFolder::load(step(3), loaded);
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/scales'"), HasSubstr("value 7 is inf")));
  }
}

TEST_F(CheckpointTest, KeepsTheNewestByNumberNotByName) {
  for (const int64_t n : {8, 9, 10, 11}) checkpoints_.save(at(n), state_, 2);
  EXPECT_FALSE(fs::exists(step(9)));
  EXPECT_TRUE(fs::exists(step(10)));
  EXPECT_EQ(*checkpoints_.newest(), step(11));
}

TEST_F(CheckpointTest, AnIncompleteOneIsPassedOver) {
  checkpoints_.save(at(1), state_, 5);
  checkpoints_.save(at(2), state_, 5);
  checkpoints_.save(at(3), state_, 5);
  fs::remove(step(3) / "COMPLETE");
  fs::resize_file(step(2) / "state.safetensors", 100);
  fs::create_directories(folder_ / "step-9.tmp");
  EXPECT_EQ(*checkpoints_.newest(), step(1));
  checkpoints_.save(at(4), state_, 5);  // clears what a kill left behind
  EXPECT_FALSE(fs::exists(folder_ / "step-9.tmp"));
}

TEST_F(CheckpointTest, AnotherModelsIsRefused) {
  checkpoints_.save(at(1), state_, 1);
  const graph::Graph other = tiny_graph(2);
  runtime::ModelState state(other, DType::kBF16);
  EXPECT_THROW(CheckpointFolder::load(step(1), state), InputError);
}

std::string error_of_load(const fs::path& checkpoint, const graph::Graph& graph) {
  runtime::ModelState state(graph, DType::kBF16);
  try {
    CheckpointFolder::load(checkpoint, state);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

void flip_bit(const fs::path& file, int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(at);
  stream.put(byte);
}

TEST_F(CheckpointTest, AFlippedBitIsNoticedWhereverItIs) {
  checkpoints_.save(at(3), state_, 1);
  const fs::path file = step(3) / "state.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(file));
  const std::string header = read_file(file, size).substr(0, 2000);
  for (const int64_t position : {static_cast<int64_t>(header.find("lazytrain")), size / 3, size / 2, size - 1}) {
    flip_bit(file, position);
    EXPECT_THAT(error_of_load(step(3), graph_), AllOf(HasSubstr("state.safetensors"), HasSubstr("checksum")))
        << "byte " << position;
    flip_bit(file, position);
  }
  const fs::path trainer = step(3) / "trainer.json";
  const std::string text = read_file(trainer, 1 << 16);
  flip_bit(trainer, static_cast<int64_t>(text.find("\"tokens\": 30")) + 10);  // 30 becomes 70
  EXPECT_THAT(error_of_load(step(3), graph_), AllOf(HasSubstr("trainer.json"), HasSubstr("checksum")));
}

TEST_F(CheckpointTest, AMarkerOfSizesAloneIsReadAsBefore) {
  checkpoints_.save(at(3), state_, 1);
  Json marker = parse_json(read_file(step(3) / "COMPLETE", 1 << 16), "COMPLETE");
  marker.erase("xxh3");
  std::ofstream(step(3) / "COMPLETE") << marker.dump();
  ASSERT_TRUE(checkpoints_.newest().has_value());
  EXPECT_EQ(error_of_load(step(3), graph_), "no error");
}

TEST_F(CheckpointTest, AFolderOfAnotherStepIsRefused) {
  checkpoints_.save(at(3), state_, 1);
  fs::rename(step(3), step(8));
  EXPECT_THAT(error_of_load(step(8), graph_), AllOf(HasSubstr("\"step\" is 3"), HasSubstr("step 8")));
}

TEST_F(CheckpointTest, WhatIsPassedOverIsSaidAsItIs) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  checkpoints_.save(at(1), state_, 5);
  checkpoints_.save(at(2), state_, 5);
  fs::remove(step(2) / "COMPLETE");
  checkpoints_.newest();
  EXPECT_THAT(log.str(), HasSubstr("step-1 is taken"));
  log.str("");
  EXPECT_TRUE(checkpoints_.any());
  EXPECT_EQ(log.str(), "");
  fs::remove(step(1) / "COMPLETE");
  EXPECT_FALSE(checkpoints_.newest().has_value());
  EXPECT_THAT(log.str(), AllOf(HasSubstr("there is no older one"), Not(HasSubstr("taken"))));
  spdlog::set_default_logger(before);
}

TEST_F(CheckpointTest, NoneIsNone) { EXPECT_FALSE(checkpoints_.newest().has_value()); }

}  // namespace
}  // namespace lazytrain::train
