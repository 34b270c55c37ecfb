// The post_processor of a tokenizer.json: the ids that stand before and behind a single text, such as Llama 3's BOS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace lazytrain::text {

struct PostProcessor {
  std::vector<int32_t> prefix, suffix;

  // `config` is the value of "post_processor": null, ByteLevel (moves offsets only), TemplateProcessing or a Sequence
  // of these. UsageError for another kind, InputError for a malformed one.
  static PostProcessor from_json(const Json& config, const std::string& where);
};

}  // namespace lazytrain::text
