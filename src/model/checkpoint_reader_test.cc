#include "model/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "base/error.h"

namespace lazytrain::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file with U8 tensors of one byte each, the first letter of their name.
std::string bytes_of_file(const std::vector<std::string>& names) {
  std::string header = "{", data;
  for (const auto& name : names) {
    const std::string begin = std::to_string(data.size());
    data += name[0];
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + begin +
              "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::string text(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

class ModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("model_folder_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void put_index(const std::string& weight_map, const std::string& metadata = R"({"total_size":2})") const {
    put("model.safetensors.index.json", R"({"metadata":)" + metadata + R"(,"weight_map":)" + weight_map + "}");
  }
  void put_two_shards() const {
    put("1.safetensors", bytes_of_file({"a"}));
    put("2.safetensors", bytes_of_file({"b"}));
    put_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  }
  template <typename E>
  std::string refusal() const {
    try {
      const ModelFolder folder(folder_);
      return "accepted";
    } catch (const E& error) {
      return error.what();
    }
  }

  fs::path folder_;
};

std::vector<std::string> names_of(const ModelFolder& folder) {
  std::vector<std::string> names;
  for (const auto* tensor : folder.tensors()) names.push_back(tensor->name);
  return names;
}

TEST_F(ModelFolderTest, ReadsOneFile) {
  put("model.safetensors", bytes_of_file({"b", "a"}));
  const ModelFolder folder(folder_);
  EXPECT_THAT(names_of(folder), ElementsAre("a", "b"));
  EXPECT_EQ(folder.find("c"), nullptr);
  EXPECT_EQ(static_cast<char>(*folder.at("b").data), 'b');
  EXPECT_THROW((void)folder.at("c"), InputError);
  folder.check_unchanged();
}

TEST_F(ModelFolderTest, ReadsShards) {
  put_two_shards();
  const ModelFolder folder(folder_);
  EXPECT_THAT(names_of(folder), ElementsAre("a", "b"));
  EXPECT_EQ(static_cast<char>(*folder.at("a").data), 'a');
  EXPECT_THAT(folder.warnings(), IsEmpty());
}

TEST_F(ModelFolderTest, PrefersTheSingleFile) {
  put_two_shards();
  put("model.safetensors", bytes_of_file({"single"}));
  EXPECT_THAT(names_of(ModelFolder(folder_)), ElementsAre("single"));
}

TEST_F(ModelFolderTest, FollowsSymlinksAsInTheHubCache) {
  const fs::path blobs = folder_ / "blobs", snapshot = folder_ / "snapshot";
  fs::create_directories(blobs);
  fs::create_directories(snapshot);
  put("blobs/11", bytes_of_file({"a"}));
  put("blobs/22", R"({"metadata":{},"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  fs::create_symlink("../blobs/11", snapshot / "model-00001-of-00001.safetensors");
  fs::create_symlink("../blobs/22", snapshot / "model.safetensors.index.json");
  EXPECT_THAT(names_of(ModelFolder(snapshot)), ElementsAre("a"));
  fs::remove(blobs / "11");
  EXPECT_THROW(ModelFolder{snapshot}, InputError);
}

TEST_F(ModelFolderTest, RefusesNamesThatLeaveTheFolder) {
  put("1.safetensors", bytes_of_file({"a"}));
  const std::string outside = folder_.string() + "_outside.safetensors";
  std::ofstream(outside, std::ios::binary) << bytes_of_file({"a"});
  const std::vector<std::string> names = {"../" + fs::path(outside).filename().string(),
                                          outside,
                                          "./1.safetensors",
                                          "sub/1",
                                          "..\\\\1",
                                          "..",
                                          ".",
                                          "",
                                          "1.safetensors\\u0000",
                                          std::string(300, 'a')};
  for (const auto& name : names) {
    put_index(R"({"a":")" + name + "\"}", "{}");
    EXPECT_THAT(refusal<InputError>(), HasSubstr("expected the plain name")) << name;
  }
  fs::remove(outside);
}

TEST_F(ModelFolderTest, ChecksTheIndexAgainstTheShards) {
  put_two_shards();
  put_index(R"({"a":"2.safetensors","b":"1.safetensors"})");
  EXPECT_THAT(refusal<InputError>(), AllOf(HasSubstr("tensor \"a\""), HasSubstr("not in the shard \"2.safetensors\"")));
  put_index(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})");
  EXPECT_THAT(refusal<InputError>(), HasSubstr("tensor \"c\" is not in the shard"));
  put_index(R"({"a":"1.safetensors","b":"3.safetensors"})");
  EXPECT_THAT(refusal<InputError>(), HasSubstr("\"3.safetensors\", which is not in the folder"));
  put("2.safetensors", bytes_of_file({"b", "extra"}));
  put_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  EXPECT_THAT(refusal<InputError>(), HasSubstr("\"extra\" of the shard \"2.safetensors\" is missing"));
  put("2.safetensors", bytes_of_file({"b", "a"}));
  EXPECT_THAT(refusal<InputError>(), HasSubstr("tensor \"a\" stands in two shards"));
  put("2.safetensors", "broken");
  EXPECT_THAT(refusal<InputError>(), HasSubstr("2.safetensors"));
}

TEST_F(ModelFolderTest, RefusesABrokenIndex) {
  put("1.safetensors", bytes_of_file({"a"}));
  for (const std::string map : {"[]", "null", "1", R"({"a":1})", R"({"a":["1.safetensors"]})",
                                R"({"a":"1.safetensors","a":"1.safetensors"})"}) {
    put_index(map);
    EXPECT_NE(refusal<InputError>(), "accepted") << map;
  }
  put("model.safetensors.index.json", "{");
  EXPECT_NE(refusal<InputError>(), "accepted");
  put("model.safetensors.index.json", "{}");
  EXPECT_THAT(refusal<InputError>(), HasSubstr("weight_map"));
}

TEST_F(ModelFolderTest, WarnsOfAnotherTotalSize) {
  put_two_shards();
  const std::string map = R"({"a":"1.safetensors","b":"2.safetensors"})";
  for (const std::string same : {R"({"total_size":2})", R"({"total_size":2.0})", "{}", "null", R"({"other":1})"}) {
    put_index(map, same);
    EXPECT_THAT(ModelFolder(folder_).warnings(), IsEmpty()) << same;
  }
  for (const std::string other : {R"({"total_size":3})", R"({"total_size":2.5})", R"({"total_size":"2"})"}) {
    put_index(map, other);
    EXPECT_THAT(ModelFolder(folder_).warnings(), ElementsAre(HasSubstr("total_size"))) << other;
  }
}

TEST_F(ModelFolderTest, SaysWhatToDoWithoutWeights) {
  EXPECT_THAT(refusal<UsageError>(), HasSubstr("no weights here"));
  put("pytorch_model.bin", "pickle");
  EXPECT_THAT(refusal<UsageError>(), HasSubstr("save_pretrained"));
  EXPECT_THROW(ModelFolder(folder_ / "absent"), UsageError);
  EXPECT_THROW(ModelFolder(folder_ / "pytorch_model.bin"), UsageError);
}

TEST_F(ModelFolderTest, DoesNotWaitForAPipe) {
  ASSERT_EQ(::mkfifo((folder_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(refusal<InputError>(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace lazytrain::model
