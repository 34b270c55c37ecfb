// The normalizer of a tokenizer.json: none, a Unicode normal form, or a Sequence of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lazytrain::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Linear but for the sorting of runs of combining marks. `text` is well-formed UTF-8; may be a view of any buffer but
// `buffer`, which holds the result when it differs from the text.
std::string_view normalize(std::string_view text, NormalForm form, std::string& buffer);

class Normalizer {
 public:
  Normalizer() = default;
  // `config` is the value of "normalizer". UsageError for a kind that we do not have, InputError for a malformed one.
  static Normalizer from_json(const Json& config, const std::string& where);

  std::string_view apply(std::string_view text, std::string& buffer) const;
  std::string describe() const;  // what it does, for fingerprints

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace lazytrain::text
