#include "model/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "model/checkpoint_reader.h"
#include "model/safetensors.h"

namespace lazytrain::model {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Byte j of tensor i, distinct enough to see a swap.
std::byte byte_at(size_t tensor, size_t position) { return static_cast<std::byte>(tensor * 41 + position * 7 + 3); }

class WriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("writer_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // In pieces of three bytes.
  static TensorSource pattern(const std::vector<TensorSpec>& tensors) {
    return [tensors](size_t index, const TensorSink& sink) {
      const auto bytes = static_cast<size_t>(bytes_of(tensors[index]));
      for (size_t begin = 0; begin < bytes; begin += 3) {
        std::vector<std::byte> piece;
        for (size_t i = begin; i < std::min(bytes, begin + 3); ++i) piece.push_back(byte_at(index, i));
        sink(piece);
      }
    };
  }
  static void expect_pattern(const TensorEntry& entry, size_t tensor) {
    for (int64_t i = 0; i < entry.bytes; ++i) {
      ASSERT_EQ(entry.data[i], byte_at(tensor, static_cast<size_t>(i))) << entry.name << " byte " << i;
    }
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(folder_)) names.push_back(item.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

const std::vector<TensorSpec> kMixed = {{"step", DType::kI64, {}},          {"m", DType::kF32, {2, 3}},
                                        {"hi \"q\" é", DType::kBF16, {5}},  {"lo", DType::kI16, {5}},
                                        {"codes", DType::kU8, {7}},         {"none", DType::kF16, {0, 4}},
                                        {"rows", DType::kI32, {1, 1, 1, 2}}};

TEST_F(WriterTest, WritesEveryTypeAndReadsItBack) {
  write_safetensors(folder_ / "c.safetensors", kMixed, {{"step", "12"}, {"note", "a\nb\"c"}}, pattern(kMixed));
  const SafetensorsFile file(folder_ / "c.safetensors");
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair("note", "a\nb\"c"), std::pair("step", "12")));
  ASSERT_EQ(file.tensors().size(), kMixed.size());
  for (size_t i = 0; i < kMixed.size(); ++i) {
    const TensorEntry* entry = file.find(kMixed[i].name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->dtype, kMixed[i].dtype);
    EXPECT_EQ(entry->shape, kMixed[i].shape);
    expect_pattern(*entry, i);
  }
  EXPECT_THAT(files(), ElementsAre("c.safetensors"));  // no temporary file
}

TEST_F(WriterTest, LaysTheFileOutAsTheFormatSays) {
  const std::vector<TensorSpec> tensors = {{"z", DType::kU8, {2}}, {"a", DType::kU8, {1}}};
  write_safetensors(folder_ / "x", tensors, {{"format", "pt"}}, pattern(tensors));
  const std::string text = read("x");
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0u);
  const std::string header = text.substr(8, length);
  const std::string expected = R"({"__metadata__":{"format":"pt"},"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})";
  EXPECT_EQ(header.substr(0, expected.size()), expected);
  EXPECT_EQ(header.find_first_not_of(' ', expected.size()), std::string::npos);
  EXPECT_EQ(text.size(), 8 + length + 3);
}

TEST_F(WriterTest, WritesOneFileWhenItFits) {
  const std::vector<TensorSpec> tensors = {{"a", DType::kBF16, {4}}, {"b", DType::kBF16, {4}}};
  EXPECT_THAT(write_model_weights(folder_, tensors, pattern(tensors), 16), ElementsAre("model.safetensors"));
  EXPECT_EQ(SafetensorsFile(folder_ / "model.safetensors").metadata().at("format"), "pt");
}

TEST_F(WriterTest, CutsShardsInOrder) {
  const std::vector<TensorSpec> tensors = {{"c", DType::kBF16, {4}},
                                           {"b", DType::kBF16, {4}},
                                           {"a", DType::kBF16, {50}},
                                           {"e", DType::kBF16, {0}},
                                           {"d", DType::kBF16, {1}}};
  EXPECT_THAT(write_model_weights(folder_ / "new" / "folder", tensors, pattern(tensors), 16),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  folder_ = folder_ / "new" / "folder";
  const Json index = read_json(folder_ / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 118);
  EXPECT_EQ(index["weight_map"]["c"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["a"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
  const ModelFolder reopened(folder_);
  EXPECT_THAT(reopened.warnings(), IsEmpty());
  for (size_t i = 0; i < tensors.size(); ++i) expect_pattern(reopened.at(tensors[i].name), i);
}

TEST_F(WriterTest, ReplacesAnEarlierExportWhole) {
  const std::vector<TensorSpec> tensors = {{"a", DType::kU8, {4}}, {"b", DType::kU8, {4}}, {"c", DType::kU8, {4}}};
  write_model_weights(folder_, tensors, pattern(tensors), 4);
  write_model_weights(folder_, tensors, pattern(tensors), 8);
  EXPECT_THAT(files(), ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                   "model.safetensors.index.json"));
  write_model_weights(folder_, tensors, pattern(tensors), 100);
  EXPECT_THAT(files(), ElementsAre("model.safetensors"));
  const auto fewer = std::span(tensors).first(2);
  write_model_weights(folder_, fewer, pattern(tensors), 4);
  EXPECT_EQ(ModelFolder(folder_).tensors().size(), 2u);
}

TEST_F(WriterTest, LeavesNothingWhenTheSourceIsWrong) {
  const std::vector<TensorSpec> tensors = {{"a", DType::kU8, {4}}};
  for (const size_t bytes : {size_t{3}, size_t{5}, size_t{0}}) {
    try {
      write_safetensors(folder_ / "x", tensors, {},
                        [&](size_t, const TensorSink& sink) { sink(std::vector<std::byte>(bytes)); });
      FAIL();
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor \"a\""));
    }
  }
  EXPECT_THROW(write_safetensors(folder_ / "x", tensors, {},
                                 [](size_t, const TensorSink&) { throw RunError("the source failed"); }),
               RunError);
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(WriterTest, RefusesWhatNoReaderWouldTake) {
  const auto refused = [&](const std::vector<TensorSpec>& tensors, const SafetensorsMetadata& metadata) {
    EXPECT_THROW(write_safetensors(folder_ / "x", tensors, metadata, pattern(tensors)), RunError);
  };
  refused({{"a", DType::kU8, {0}}, {"a", DType::kU8, {0}}}, {});
  refused({{"__metadata__", DType::kU8, {0}}}, {});
  refused({{"", DType::kU8, {0}}}, {});
  refused({{"a\n", DType::kU8, {0}}}, {});
  refused({{"a\xff", DType::kU8, {0}}}, {});
  refused({{"a", DType::kU8, {-1}}}, {});
  refused({{"a", DType::kF32, {int64_t{1} << 62}}}, {});
  refused({}, {{"k", "\xff"}});
  EXPECT_THROW(write_safetensors(folder_ / "absent" / "x", {}, {}, pattern({})), RunError);
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(WriterTest, AnUntrainedBf16ModelKeepsItsBytes) {
  const std::vector<TensorSpec> tensors = {{"model.embed_tokens.weight", DType::kBF16, {301, 64}},
                                           {"model.norm.weight", DType::kBF16, {64}}};
  write_model_weights(folder_ / "in", tensors, pattern(tensors));
  const ModelFolder in(folder_ / "in");
  const auto copy = [&](DType dtype) {
    std::vector<TensorSpec> specs = tensors;
    for (auto& spec : specs) spec.dtype = dtype;
    write_model_weights(folder_ / "out", specs, [&](size_t index, const TensorSink& sink) {
      const TensorEntry& entry = in.at(specs[index].name);
      std::vector<bf16> hi(static_cast<size_t>(entry.count));
      std::vector<int16_t> lo(hi.size());
      read_as_master(entry, hi, lo);
      emit_master(hi, lo, dtype, sink);
    });
  };
  copy(DType::kBF16);
  EXPECT_EQ(read("in/model.safetensors"), read("out/model.safetensors"));
  copy(DType::kF32);  // and fp32 export of it is the same values
  const ModelFolder out(folder_ / "out");
  for (const auto* entry : in.tensors()) {
    for (int64_t i = 0; i < entry->count; ++i) {
      uint16_t half = 0;
      uint32_t full = 0;
      std::memcpy(&half, entry->data + 2 * i, 2);
      std::memcpy(&full, out.at(entry->name).data + 4 * i, 4);
      ASSERT_EQ(full, static_cast<uint32_t>(half) << 16);
    }
  }
}

}  // namespace
}  // namespace lazytrain::model
