#include "text/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <set>

#include "base/error.h"
#include "text/testing.h"

namespace lazytrain::text {
namespace {

namespace fs = std::filesystem;
using test::Folder;

// An encoder that counts its calls, so that a test sees whether data was tokenised.
struct CountingEncoder {
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  Encoder encoder() const {
    Encoder e = test::pair_encoder();
    e.encode = [calls = calls](std::string_view text) {
      ++*calls;
      return test::pair_encode(text);
    };
    return e;
  }
};

class TokenCache : public testing::Test {
 protected:
  TokenCache() {
    folder_.write("d.jsonl",
                  "{\"prompt\": \"abc\", \"response\": \"de\"}\n{\"prompt\": \"\", \"response\": \"fghijkl\"}\n");
  }
  DataOptions options(int64_t seq = 4) const { return {folder_.path() / "d.jsonl", {}, seq, folder_.path() / "cache"}; }
  PreparedData prepare(const DataOptions& o, const ChatTemplate* chat = nullptr) {
    return prepare_data(o, counting_.encoder(), chat, pool_);
  }
  int calls() { return counting_.calls->exchange(0); }
  fs::path only_file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_.path() / "cache")) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }

  Folder folder_;
  CountingEncoder counting_;
  ThreadPool pool_{2};
};

void expect_same(const PreparedData& a, const PreparedData& b) {
  EXPECT_EQ(a.samples.tokens, b.samples.tokens);
  EXPECT_EQ(a.samples.is_target, b.samples.is_target);
  EXPECT_EQ(a.samples.offsets, b.samples.offsets);
  EXPECT_EQ(a.counts.rows, b.counts.rows);
  EXPECT_EQ(a.counts.samples, b.counts.samples);
  EXPECT_EQ(a.counts.truncated, b.counts.truncated);
  EXPECT_EQ(a.counts.dropped, b.counts.dropped);
  EXPECT_EQ(a.counts.tokens, b.counts.tokens);
  EXPECT_EQ(a.counts.targets, b.counts.targets);
}

TEST_F(TokenCache, SecondRunDoesNotTokenise) {
  const PreparedData first = prepare(options());
  EXPECT_GT(calls(), 0);
  EXPECT_EQ(first.counts.truncated, 1);
  const PreparedData second = prepare(options());
  EXPECT_EQ(calls(), 0);
  expect_same(first, second);
}

TEST_F(TokenCache, NothingIsKeptWithoutAFolder) {
  DataOptions o = options();
  o.cache_folder.clear();
  prepare(o);
  calls();
  prepare(o);
  EXPECT_GT(calls(), 0);
}

TEST_F(TokenCache, KeyHoldsAllThatMatters) {
  const auto a = ChatTemplate::parse("a", "t", {});
  const auto b = ChatTemplate::parse("b", "t", {});
  const auto c = ChatTemplate::parse("b", "t", {{"bos_token", "<s>"}});
  Encoder encoder = test::pair_encoder();
  const Dataset data(options().file, {});
  std::set<std::string> keys = {cache_key(data, encoder, nullptr, 4),
                                cache_key(data, encoder, nullptr, 5),
                                cache_key(data, encoder, &a, 4),
                                cache_key(data, encoder, &b, 4),
                                cache_key(data, encoder, &c, 4),
                                cache_key(Dataset(options().file, {"prompt", "response"}), encoder, nullptr, 4),
                                cache_key(Dataset(options().file, {"response", "prompt"}), encoder, nullptr, 4)};
  encoder.fingerprint = "other";
  keys.insert(cache_key(data, encoder, nullptr, 4));
  encoder.eos = 9;
  keys.insert(cache_key(data, encoder, nullptr, 4));
  folder_.write("d.jsonl", "{\"prompt\": \"abc\", \"response\": \"dE\"}\n");
  keys.insert(cache_key(Dataset(options().file, {}), encoder, nullptr, 4));
  EXPECT_EQ(keys.size(), 10u);
}

TEST_F(TokenCache, DamageIsFoundAndRepaired) {
  spdlog::set_level(spdlog::level::off);  // hundreds of warnings
  const PreparedData good = prepare(options());
  const fs::path file = only_file();
  const std::string bytes = read_file(file, 1 << 20);
  calls();
  for (size_t i = 0; i < bytes.size(); ++i) {  // every byte
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    write_file(file, damaged);
    EXPECT_FALSE(load_tokens(options().cache_folder, file.stem().string()).has_value()) << i;
  }
  for (const size_t length : {size_t{0}, size_t{1}, size_t{50}, bytes.size() - 1}) {
    write_file(file, bytes.substr(0, length));
    EXPECT_FALSE(load_tokens(options().cache_folder, file.stem().string()).has_value()) << length;
  }
  write_file(file, bytes + "x");
  expect_same(prepare(options()), good);
  EXPECT_GT(calls(), 0);
  EXPECT_EQ(read_file(file, 1 << 20), bytes);  // written anew
  spdlog::set_level(spdlog::level::info);
}

TEST_F(TokenCache, FileOfAnotherKeyIsForeign) {
  prepare(options());
  const fs::path file = only_file();
  const std::string other(32, 'a');
  fs::rename(file, file.parent_path() / (other + ".tokens"));
  EXPECT_FALSE(load_tokens(options().cache_folder, other).has_value());
}

TEST_F(TokenCache, UnwritableFolderIsAWarning) {
  folder_.write("cache", "a file where the folder should be");
  EXPECT_EQ(prepare(options()).counts.samples, 2);
}

}  // namespace
}  // namespace lazytrain::text
