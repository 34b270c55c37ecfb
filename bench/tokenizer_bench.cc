// Speed of the tokenizer. LAZYTRAIN_TOKENIZER names a folder with tokenizer.json and LAZYTRAIN_TEXT a file of text, a
// record a line; without them a made-up tokenizer and text are used.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace lazytrain::text {
namespace {

// All bytes and the merges of a few hundred made-up words.
Tokenizer made_up_tokenizer(const std::vector<std::string>& words) {
  Json vocab = Json::object(), merges = Json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[bytes_to_token(std::string(1, static_cast<char>(byte)))] = byte;
  for (const std::string& word : words) {
    std::string left = bytes_to_token(" ");
    for (const char letter : word) {
      const std::string product = left + letter;
      if (!vocab.contains(product)) {
        vocab[product] = vocab.size();
        merges.push_back(Json::array({left, std::string(1, letter)}));
      }
      left = product;
    }
  }
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
  const Json file = {{"pre_tokenizer", byte_level}, {"decoder", byte_level}, {"model", model}};
  return Tokenizer::parse(file.dump(), "", "made up");
}

struct Input {
  Tokenizer tokenizer;
  std::vector<std::string> lines;
};

Input make_input() {
  std::vector<std::string> words;
  for (uint64_t i = 0; i < 500; ++i) {
    std::string word;
    for (uint64_t j = 0; j <= i % 9; ++j) word.push_back(static_cast<char>('a' + (i * 7 + j * j * 5 + i / 9) % 26));
    words.push_back(word);
  }
  const char* folder = std::getenv("LAZYTRAIN_TOKENIZER");
  const char* file = std::getenv("LAZYTRAIN_TEXT");
  Input input{folder != nullptr ? Tokenizer::load(folder) : made_up_tokenizer(words), {}};
  if (file != nullptr) {
    const std::string text = read_file(file, int64_t{1} << 30);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      input.lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  } else {
    for (size_t i = 0; i < 2000; ++i) {
      std::string line;
      for (size_t j = 0; j < 60; ++j)
        line += words[(i * i * 31 + j * (i + 17)) % words.size()] + (j % 11 == 10 ? ". " : " ");
      input.lines.push_back(line);
    }
  }
  return input;
}

const Input& input() {
  static const Input kInput = make_input();
  return kInput;
}

void encode_lines(benchmark::State& state) {
  const auto& [tokenizer, lines] = input();
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::string& line : lines) {
      benchmark::DoNotOptimize(tokenizer.encode(line));
      bytes += static_cast<int64_t>(line.size());
    }
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(encode_lines)->Unit(benchmark::kMillisecond);

void decode_lines(benchmark::State& state) {
  std::vector<std::vector<int32_t>> lines;
  for (const std::string& line : input().lines) lines.push_back(input().tokenizer.encode(line));
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const auto& ids : lines) bytes += static_cast<int64_t>(input().tokenizer.decode(ids).size());
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(decode_lines)->Unit(benchmark::kMillisecond);

// One piece: what a cache cannot help with.
void encode_one_long_word(benchmark::State& state) {
  std::string word;
  for (int64_t i = 0; i < state.range(0); ++i) word.push_back(static_cast<char>('a' + (i * i + i / 5) % 26));
  const Tokenizer& tokenizer = input().tokenizer;
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(word));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(encode_one_long_word)->Arg(1 << 10)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

void load(benchmark::State& state) {
  const char* folder = std::getenv("LAZYTRAIN_TOKENIZER");
  if (folder == nullptr) {
    state.SkipWithError("LAZYTRAIN_TOKENIZER names no folder");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(folder));
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lazytrain::text

BENCHMARK_MAIN();
