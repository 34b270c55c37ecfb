#include "text/pretokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

constexpr size_t kMaxSteps = 64;

SplitBehavior parse_behavior(const JsonObject& config) {
  const std::string name = config.string("behavior");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw InputError(
      "{}: \"behavior\" is \"{}\", expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous",
      config.where(), shown(name));
}

// Joins matches and gaps as the behaviour says. The parts cover the text; a removed part is left out.
template <typename Part>
std::vector<Part> merge(std::vector<Part> parts, SplitBehavior behavior) {
  std::vector<Part> out;
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const Part& part : parts) {
    bool join = false;
    switch (behavior) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (part.match) continue;
        break;
      case SplitBehavior::kContiguous:
        join = part.match == previous;
        break;
      case SplitBehavior::kMergedWithPrevious:
      case SplitBehavior::kMergedWithNext:
        join = part.match && !previous;
    }
    previous = part.match;
    if (!join || out.empty()) {
      out.push_back(part);
    } else if (backwards) {
      out.back().begin = part.begin;
    } else {
      out.back().end = part.end;
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

struct Pretokenizer::Run {
  Regex::Workspace& workspace;
  const Sink& sink;
};

Pretokenizer Pretokenizer::from_json(const Json& config, const std::string& where) {
  Pretokenizer out;
  const std::string place = where + ": pre_tokenizer";
  if (!config.is_null()) out.add_steps(config, place, 0);
  if (!out.byte_level_) throw UsageError("{}: no ByteLevel step; only byte-level BPE is supported", place);
  return out;
}

void Pretokenizer::add_steps(const Json& config, const std::string& where, int depth) {
  const JsonObject object(config, where);
  const std::string type = object.string("type");
  if (steps_.size() >= kMaxSteps) throw InputError("{}: more than {} steps", where, kMaxSteps);
  if (type == "Sequence") {
    if (depth >= static_cast<int>(kMaxSteps)) {
      throw InputError("{}: nested more than {} levels deep", where, kMaxSteps);
    }
    const auto parts = config.find("pretokenizers");
    if (parts == config.end() || !parts->is_array()) {
      throw InputError("{}: \"pretokenizers\" of a Sequence must be a list", where);
    }
    for (const Json& part : *parts) add_steps(part, where, depth + 1);
    return;
  }
  // Behind ByteLevel a step would see the byte-level alphabet instead of the text.
  if (byte_level_) throw UsageError("{}: {} after ByteLevel is not supported", where, shown(type));
  if (type == "Split") {
    add_split(object);
  } else if (type == "Digits") {
    Step step{.kind = Step::Kind::kDigits, .regex = {}, .known = {}, .description = ""};
    step.behavior =
        object.boolean_or("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    step.description = fmt::format("digits {}", static_cast<int>(step.behavior));
    steps_.push_back(std::move(step));
  } else if (type == "ByteLevel") {
    add_byte_level(object);
  } else {
    throw UsageError(
        "{}: the pre-tokenizer \"{}\" is not supported; supported are Split, Digits, ByteLevel and a Sequence of these",
        where, shown(type));
  }
}

void Pretokenizer::add_split(const JsonObject& config) {
  const JsonObject pattern = config.object("pattern");
  const std::string where = config.where() + ": Split";
  const bool is_regex = pattern.has("Regex");
  if (is_regex == pattern.has("String")) {
    throw InputError("{}: \"pattern\" must hold one of \"Regex\" and \"String\"", where);
  }
  const std::string text = pattern.string(is_regex ? "Regex" : "String");
  Step step{.kind = Step::Kind::kRegex, .regex = {}, .known = {}, .description = ""};
  step.behavior = parse_behavior(config);
  if (is_regex && step.behavior == SplitBehavior::kIsolated) step.known = known_pattern(text);
  if (step.known) {
    step.kind = Step::Kind::kKnown;
  } else {
    step.regex = is_regex ? Regex::compile(text, where) : Regex::literal(text, where);
  }
  step.invert = config.boolean_or("invert", false);
  step.description =
      fmt::format("split {} {} {} {}:{}", is_regex, static_cast<int>(step.behavior), step.invert, text.size(), text);
  steps_.push_back(std::move(step));
}

void Pretokenizer::add_byte_level(const JsonObject& config) {
  byte_level_ = true;
  if (config.boolean_or("add_prefix_space", true)) {
    steps_.push_back({.kind = Step::Kind::kPrefixSpace, .regex = {}, .known = {}, .description = "prefix space"});
  }
  if (config.boolean_or("use_regex", true)) {
    steps_.push_back({.kind = Step::Kind::kKnown, .regex = {}, .known = KnownPattern::kGpt2, .description = "gpt2"});
  }
}

// Matches and the gaps between them. An empty match right behind a match does not count, as in Oniguruma's iteration.
std::vector<Pretokenizer::Part> Pretokenizer::find_parts(const Step& step, std::string_view text,
                                                         Regex::Workspace& workspace) {
  std::vector<Part> parts;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (done != begin) parts.push_back({done, begin, step.invert});
    parts.push_back({begin, end, !step.invert});
    done = end;
  };
  if (step.kind == Step::Kind::kDigits) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (is_digit_step_number(point.value)) add(at, at + point.bytes);
      at += point.bytes;
    }
  } else {
    size_t last_end = std::string_view::npos;
    for (size_t from = 0; from <= text.size();) {
      const auto match = step.regex->find(text, from, workspace);
      if (!match) break;
      from = match->second;
      if (match->first == match->second && match->second == last_end) {
        from += from < text.size() ? code_point_at(text, from).bytes : 1;
        continue;
      }
      last_end = match->second;
      add(match->first, match->second);
    }
  }
  if (done != text.size()) parts.push_back({done, text.size(), step.invert});
  return parts;
}

void Pretokenizer::run(size_t index, std::string_view text, Run& state) const {
  if (text.empty()) return;
  if (index == steps_.size()) return state.sink(text);
  const Step& step = steps_[index];
  if (step.kind == Step::Kind::kPrefixSpace) {
    if (text.front() == ' ') return run(index + 1, text, state);
    std::string prefixed(1, ' ');
    prefixed += text;
    return run(index + 1, prefixed, state);
  }
  if (step.behavior != SplitBehavior::kIsolated) {
    for (const Part& part : merge(find_parts(step, text, state.workspace), step.behavior)) {
      run(index + 1, text.substr(part.begin, part.end - part.begin), state);
    }
    return;
  }
  run_isolated(index, text, state);
}

// Passes matches and gaps on as they are found.
void Pretokenizer::run_isolated(size_t index, std::string_view text, Run& state) const {
  const Step& step = steps_[index];
  size_t done = 0;
  const auto pass = [&](size_t begin, size_t end) {
    run(index + 1, text.substr(done, begin - done), state);
    run(index + 1, text.substr(begin, end - begin), state);
    done = end;
  };
  if (step.kind == Step::Kind::kKnown) {
    while (done < text.size()) pass(done, match_known(*step.known, text, done));
    return;
  }
  if (step.kind == Step::Kind::kDigits) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (is_digit_step_number(point.value)) pass(at, at + point.bytes);
      at += point.bytes;
    }
  } else {
    for (size_t from = 0; from < text.size();) {
      const auto match = step.regex->find(text, from, state.workspace);
      if (!match) break;
      pass(match->first, match->second);
      from = done;
      // An empty match cuts, but does not stop the search.
      if (match->first == match->second && from < text.size()) from += code_point_at(text, from).bytes;
    }
  }
  run(index + 1, text.substr(done), state);
}

void Pretokenizer::split(std::string_view text, Regex::Workspace& workspace, const Sink& sink) const {
  Run state{workspace, sink};
  run(0, text, state);
}

std::string Pretokenizer::describe() const {
  std::string out;
  for (const Step& step : steps_) out += step.description + ";";
  return out;
}

}  // namespace lazytrain::text
