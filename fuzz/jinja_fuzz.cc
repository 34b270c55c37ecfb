// Any bytes as a chat template over a fixed conversation: refused, failed or rendered, within the interpreter's bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

namespace {

const lazytrain::Json& conversation() {
  static const lazytrain::Json variables = lazytrain::parse_json(
      R"({"messages": [{"role": "system", "content": " Be terse. "}, {"role": "user", "content": "2 + 2? \u00e9"},
          {"role": "assistant", "content": "4", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "add_generation_prompt": true})",
      "conversation");
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto chat = lazytrain::text::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size),
                                                           "fuzz", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const std::string text = chat.render(conversation());
    if (text.size() > (size_t{65} << 20)) std::abort();
  } catch (const lazytrain::Error&) {
  }
  return 0;
}
