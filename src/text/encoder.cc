#include "text/encoder.h"

#include "base/error.h"

namespace lazytrain::text {

Encoder encoder_of(const Tokenizer& tokenizer) {
  const auto eos = tokenizer.eos_id();
  if (!eos) {
    throw UsageError(
        "the tokenizer has no EOS token, which ends every training sample: set \"eos_token\" in tokenizer_config.json");
  }
  return {[tokenizer](std::string_view text) { return tokenizer.encode(text); },
          [tokenizer](int32_t id) { return tokenizer.is_special(id); }, *eos, tokenizer.fingerprint()};
}

}  // namespace lazytrain::text
