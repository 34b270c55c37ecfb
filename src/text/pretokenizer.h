// The pre_tokenizer of a byte-level tokenizer.json: splits a text into the pieces inside which BPE merges. A sequence
// of Split and Digits steps with one ByteLevel step at the end, each applied to the pieces of the one before.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/known_patterns.h"
#include "text/regex.h"

namespace lazytrain::text {

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

class Pretokenizer {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  // `config` is the value of "pre_tokenizer". UsageError for a kind that we do not have or without ByteLevel,
  // InputError for a malformed one.
  static Pretokenizer from_json(const Json& config, const std::string& where);

  // Calls the sink with each piece, in order, as bytes of the text (not in the byte-level alphabet). No piece is empty;
  // a view is valid during the call only. `text` is well-formed UTF-8.
  void split(std::string_view text, Regex::Workspace& workspace, const Sink& sink) const;

  std::string describe() const;  // what it does, for fingerprints

 private:
  struct Step {
    enum class Kind { kRegex, kKnown, kDigits, kPrefixSpace } kind;
    std::optional<Regex> regex;         // for kRegex
    std::optional<KnownPattern> known;  // for kKnown, always isolated
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    std::string description;
  };
  struct Part {
    size_t begin, end;
    bool match;
  };
  struct Run;  // the state of one call of split

  void add_steps(const Json& config, const std::string& where, int depth);
  void add_split(const JsonObject& config);
  void add_byte_level(const JsonObject& config);
  void run(size_t step, std::string_view text, Run& state) const;
  void run_isolated(size_t step, std::string_view text, Run& state) const;
  static std::vector<Part> find_parts(const Step& step, std::string_view text, Regex::Workspace& workspace);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace lazytrain::text
