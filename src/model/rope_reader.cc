#include "model/rope_reader.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"

namespace lazytrain::model {
namespace {

constexpr int64_t kMaxOriginalPositions = int64_t{1} << 28;

void read_llama3(ConfigReader& rope, RopeConfig& config) {
  config.type = RopeType::kLlama3;
  config.factor = rope.number("factor", 1, 1e6);
  config.low_frequency = rope.number("low_freq_factor", 1e-6, 1e6);
  config.high_frequency = rope.number("high_freq_factor", 1e-6, 1e6);
  config.original_positions = rope.integer("original_max_position_embeddings", 1, kMaxOriginalPositions);
  if (config.high_frequency <= config.low_frequency) {
    rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
  }
}

void read_yarn(ConfigReader& rope, RopeConfig& config) {
  config.type = RopeType::kYarn;
  config.factor = rope.number("factor", 1, 1e6);
  config.beta_fast = rope.number_or("beta_fast", 32, 1e-6, 1e6);
  config.beta_slow = rope.number_or("beta_slow", 1, 1e-6, 1e6);
  config.truncate = rope.boolean_or("truncate", true);
  config.original_positions = rope.integer("original_max_position_embeddings", 1, kMaxOriginalPositions);
  if (config.beta_fast <= config.beta_slow) rope.refuse("beta_fast", "must be greater than beta_slow");
  for (const char* key : {"mscale", "mscale_all_dim"}) rope.require(key, nullptr, "is not supported; remove it");
}

// Reads one of the two spellings ("rope_scaling", "rope_parameters") but what agree() takes care of.
RopeConfig read_object(ConfigReader& rope, const FamilyReads& reads) {
  const std::string type = rope.string_or("rope_type", rope.string_or("type", "default"));
  if (rope.string_or("type", type) != type) rope.refuse("type", "contradicts \"rope_type\"; remove one of them");
  RopeConfig config;
  if (type == "default" && !rope.has("type") && !rope.has("rope_type") && rope.has("factor")) {
    rope.refuse("factor", "scales an embedding whose \"rope_type\" is not given");
  }
  if (type == "yarn" && reads.yarn) {
    rope.require("attention_factor", nullptr, "only the one that follows from \"factor\" is supported; remove it");
    read_yarn(rope, config);
    return config;
  }
  rope.require("attention_factor", 1, "only 1.0 is supported");
  if (type == "llama3") {
    read_llama3(rope, config);
  } else if (type != "default") {
    rope.refuse(
        rope.has("rope_type") ? "rope_type" : "type",
        "this scaling of the rotary embedding is not supported; known are \"default\" and, for the llama family, "
        "\"llama3\"");
  }
  return config;
}

// A number that may stand in several places of one file and must be the same in all.
void agree(ConfigReader& from, const char* key, double min, double max, std::optional<double>& value) {
  if (!from.has(key)) return;
  const double found = from.number(key, min, max);
  if (value.has_value() && *value != found) {
    from.refuse(key, fmt::format("another place of the same file says {}; remove the wrong one", *value));
  }
  value = found;
}

// The halves of the turned dimensions that follow time, height and width. Text has one position for all three, so they
// turn as without sections (reference: models, mRoPE); they must add up all the same.
void check_sections(ConfigReader& rope, int64_t rotated) {
  rope.boolean_or("mrope_interleaved", true);
  if (!rope.has("mrope_section")) return;
  int64_t sum = 0;
  const Json& sections = rope.value("mrope_section");
  if (!sections.is_array() || sections.size() != 3) rope.refuse("mrope_section", "expected a list of three numbers");
  for (const Json& section : sections) {
    if (!section.is_number_unsigned() || section.get<uint64_t>() > static_cast<uint64_t>(rotated)) {
      rope.refuse("mrope_section", "expected whole numbers, none above half of the turned dimensions");
    }
    sum += section.get<int64_t>();
  }
  if (2 * sum != rotated) {
    rope.refuse("mrope_section", fmt::format("the sections add up to {}, expected half of the {} turned dimensions of "
                                             "a head (head_dim · partial_rotary_factor)",
                                             sum, rotated));
  }
}

void check_partial(ConfigReader& reader, const RopeConfig& rope, int64_t head_dim) {
  const double dims = static_cast<double>(head_dim) * rope.partial;
  const int64_t rotated = rope.rotated(head_dim);
  if (rotated < 2 || rotated % 2 != 0 || static_cast<double>(rotated) != dims) {
    throw UsageError("{}: \"partial_rotary_factor\" {} of a head of {} is {} dimensions, expected an even number",
                     reader.where(), rope.partial, head_dim, dims);
  }
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, const FamilyReads& reads, int64_t head_dim,
                     std::vector<std::string>& unknown) {
  constexpr double kSmallestTheta = 1;
  constexpr double kLargestTheta = 1e15;
  constexpr double kSmallestPart = 1e-6;
  const bool parts = reads.partial_rotary_factor > 0;
  std::optional<double> theta, partial;
  std::optional<RopeConfig> rope;
  std::vector<std::pair<std::string, ConfigReader>> objects;
  const auto read_places = [&](ConfigReader& from) {
    agree(from, "rope_theta", kSmallestTheta, kLargestTheta, theta);
    if (parts) agree(from, "partial_rotary_factor", kSmallestPart, 1, partial);
  };
  read_places(reader);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    ConfigReader& object = objects.emplace_back(key, reader.object(key)).second;
    for (const auto& entry : reader.value(key)) {
      if (entry.is_object()) reader.refuse(key, "rotary embeddings that differ between layers are not supported");
    }
    read_places(object);
    if (!parts) {
      object.require("partial_rotary_factor", 1, "only rotary embeddings over whole heads are supported");
      object.require("mrope_section", nullptr, "multimodal rotary positions are not supported; use a text model");
    }
    const RopeConfig found = read_object(object, reads);
    if (rope.has_value() && *rope != found) reader.refuse(key, "contradicts \"rope_scaling\"; remove the wrong one");
    rope = found;
  }
  RopeConfig result = rope.value_or(RopeConfig{});
  result.theta = theta.value_or(10000);
  if (parts) {
    result.partial = partial.value_or(reads.partial_rotary_factor);
    check_partial(reader, result, head_dim);
    for (auto& [key, object] : objects) check_sections(object, result.rotated(head_dim));
  }
  for (auto& [key, object] : objects) {
    for (const auto& unread : object.unread({})) unknown.push_back(fmt::format("{}.{}", key, unread));
  }
  return result;
}

}  // namespace lazytrain::model
