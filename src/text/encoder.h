// What sample preparation asks of a tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lazytrain::text {

// Every member may be called from several threads at once.
struct Encoder {
  std::function<std::vector<int32_t>(std::string_view)> encode;  // no BOS or EOS added; names of added tokens are read
  std::function<bool(int32_t)> is_special;                       // a control token, such as one that ends a turn
  int32_t eos = 0;
  std::string fingerprint;  // of what determines ids
};

// UsageError when the tokenizer has no EOS: training needs one.
Encoder encoder_of(const Tokenizer& tokenizer);

}  // namespace lazytrain::text
