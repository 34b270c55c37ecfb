// A tokenizer.json and a text, separated by a NUL: refused with an error of ours, or text comes back through ids.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace lazytrain;
using namespace lazytrain::text;

void check(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  }
  tokenizer.encode(text, {.parse_special = false, .add_special_tokens = true});
  const std::string decoded = tokenizer.decode(ids);
  if (!is_valid_utf8(decoded)) std::abort();
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.feed(id);
  if (streamed + stream.flush() != decoded) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(input.find('\0'), size);
  try {
    const Tokenizer tokenizer = Tokenizer::parse(input.substr(0, nul), "", "fuzz");
    check(tokenizer, input.substr(std::min(nul + 1, size)));
  } catch (const Error&) {
  }
  return 0;
}
