#include "hw/profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace lazytrain::hw {
namespace {

// Beyond every machine, small enough that sums and products of figures stay finite and inside int64_t.
constexpr double kMaxRate = 1e21;
constexpr double kMaxSeconds = 10;
constexpr double kMaxRows = 1e9;
constexpr double kMaxWork = 1e21;  // FLOPs or bytes of one op
constexpr double kMaxOpSeconds = 1e6;
constexpr int64_t kMaxBytes = int64_t{1} << 52;
constexpr int64_t kMaxExtent = int64_t{1} << 32;
constexpr size_t kMaxSamples = 1000;

constexpr std::array<std::string_view, 10> kFigures = {
    "gemm_flops", "gemm_half_rows", "attention_flops", "memory_bandwidth", "host_bandwidth",
    "launch_s",   "device_bytes",   "reserved_bytes",  "host_bytes",       "disk_bytes"};
constexpr std::array<std::string_view, 5> kLinks = {"h2d", "d2h", "joint", "disk_read", "disk_write"};
constexpr std::string_view kLinkPrefix = "links.";

double in_range(const JsonObject& object, std::string_view key, double value, double min, double max) {
  if (value < min || value > max) {
    throw InputError("{}: \"{}\" is {}, expected a number from {} to {}", object.where(), key, value, min, max);
  }
  return value;
}

// Rates and times: `min` is the least that makes sense where the figure must be there.
double figure(const JsonObject& object, std::string_view key, double min, double max) {
  return in_range(object, key, object.number(key), min, max);
}
double figure_or(const JsonObject& object, std::string_view key, double otherwise, double max) {
  return in_range(object, key, object.number_or(key, otherwise), 0, max);
}

template <size_t N>
void refuse_unknown(const JsonObject& object, const std::array<std::string_view, N>& known) {
  for (const auto& [key, value] : object.json().items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, {known.begin(), known.end()});
    throw InputError("{}: unknown key \"{}\"{}; known are {}", object.where(), shown(key, 40),
                     near.empty() ? "" : fmt::format(", the nearest is \"{}\"", near), fmt::join(known, ", "));
  }
}

Links links_from(const JsonObject& object, bool one_memory) {
  refuse_unknown(object, kLinks);
  Links links;
  const double least = one_memory ? 0 : 1;
  links.h2d = in_range(object, "h2d", object.number_or("h2d", 0), least, kMaxRate);
  links.d2h = in_range(object, "d2h", object.number_or("d2h", 0), least, kMaxRate);
  links.joint = figure_or(object, "joint", links.h2d + links.d2h, 2 * kMaxRate);
  if (links.h2d > 0 && links.d2h > 0) in_range(object, "joint", links.joint, 1, 2 * kMaxRate);
  links.disk_read = figure_or(object, "disk_read", 0, kMaxRate);
  links.disk_write = figure_or(object, "disk_write", 0, kMaxRate);
  return links;
}

// The objects of the list at `key`, none when it is absent.
std::vector<JsonObject> samples_of(const JsonObject& object, const char* key) {
  std::vector<JsonObject> samples;
  if (!object.has(key)) return samples;
  const Json& list = object.json().at(key);
  if (!list.is_array() || list.size() > kMaxSamples) {
    throw InputError("{}: \"{}\" must be a list of at most {} objects", object.where(), key, kMaxSamples);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    samples.emplace_back(list[i], fmt::format("{}: {}[{}]", object.where(), key, i));
  }
  return samples;
}

std::vector<GemmSample> gemm_from(const JsonObject& object) {
  std::vector<GemmSample> result;
  for (const JsonObject& s : samples_of(object, "gemm")) {
    refuse_unknown(s, std::to_array<std::string_view>({"m", "n", "k", "flops"}));
    result.push_back({s.integer("m", 1, kMaxExtent), s.integer("n", 1, kMaxExtent), s.integer("k", 1, kMaxExtent),
                      figure(s, "flops", 1, kMaxRate)});
  }
  return result;
}

std::vector<AttentionSample> attention_from(const JsonObject& object) {
  std::vector<AttentionSample> result;
  for (const JsonObject& s : samples_of(object, "attention")) {
    refuse_unknown(
        s, std::to_array<std::string_view>({"tokens", "context", "query_heads", "kv_heads", "head_dim", "flops"}));
    result.push_back({s.integer("tokens", 1, kMaxExtent), s.integer("context", 1, kMaxExtent),
                      s.integer("query_heads", 1, kMaxExtent), s.integer("kv_heads", 1, kMaxExtent),
                      s.integer("head_dim", 1, kMaxExtent), figure(s, "flops", 1, kMaxRate)});
  }
  return result;
}

std::vector<OpSample> ops_from(const JsonObject& object) {
  std::vector<OpSample> result;
  for (const JsonObject& s : samples_of(object, "ops")) {
    refuse_unknown(s, std::to_array<std::string_view>({"op", "backward", "tokens", "flops", "bytes", "seconds"}));
    result.push_back({s.string("op"), s.boolean_or("backward", false), s.integer("tokens", 1, kMaxExtent),
                      figure(s, "flops", 0, kMaxWork), figure(s, "bytes", 0, kMaxWork),
                      figure(s, "seconds", 0, kMaxOpSeconds)});
  }
  return result;
}

bool is_figure(std::string_view key) {
  if (key.starts_with(kLinkPrefix)) {
    return std::find(kLinks.begin(), kLinks.end(), key.substr(kLinkPrefix.size())) != kLinks.end();
  }
  return std::find(kFigures.begin(), kFigures.end(), key) != kFigures.end();
}

std::map<std::string, std::string> sources_from(const JsonObject& object) {
  std::map<std::string, std::string> result;
  if (!object.has("sources")) return result;
  const JsonObject sources = object.object("sources");
  for (const auto& [key, text] : sources.json().items()) {
    if (!is_figure(key)) {
      throw InputError("{}: \"{}\" is no figure; known are {} and links.{{{}}}", sources.where(), shown(key, 40),
                       fmt::join(kFigures, ", "), fmt::join(kLinks, ", "));
    }
    result[key] = sources.string(key);
    if (result[key].empty()) throw InputError("{}: \"{}\" is empty", sources.where(), key);
  }
  return result;
}

void check_disk(const Profile& p, const std::string& where) {
  if (p.disk_bytes > 0 && (p.links.disk_read <= 0 || p.links.disk_write <= 0)) {
    throw InputError("{}: disk_bytes is {}, but links.disk_read and links.disk_write are not both above 0", where,
                     p.disk_bytes);
  }
}

void add_samples(const Profile& p, Json& result) {
  for (const GemmSample& s : p.gemm) {
    result["gemm"].push_back({{"m", s.m}, {"n", s.n}, {"k", s.k}, {"flops", s.flops}});
  }
  for (const AttentionSample& s : p.attention) {
    result["attention"].push_back({{"tokens", s.tokens},
                                   {"context", s.context},
                                   {"query_heads", s.query_heads},
                                   {"kv_heads", s.kv_heads},
                                   {"head_dim", s.head_dim},
                                   {"flops", s.flops}});
  }
  for (const OpSample& s : p.ops) {
    result["ops"].push_back({{"op", s.op},
                             {"backward", s.backward},
                             {"tokens", s.tokens},
                             {"flops", s.flops},
                             {"bytes", s.bytes},
                             {"seconds", s.seconds}});
  }
}

}  // namespace

Json to_json(const Profile& p) {
  Json json = {{"name", p.name},
               {"one_memory", p.one_memory},
               {"gemm_flops", p.gemm_flops},
               {"gemm_half_rows", p.gemm_half_rows},
               {"attention_flops", p.attention_rate()},
               {"memory_bandwidth", p.memory_bandwidth},
               {"host_bandwidth", p.host_bandwidth},
               {"launch_s", p.launch_s},
               {"links",
                {{"h2d", p.links.h2d},
                 {"d2h", p.links.d2h},
                 {"joint", p.links.joint},
                 {"disk_read", p.links.disk_read},
                 {"disk_write", p.links.disk_write}}},
               {"device_bytes", p.device_bytes},
               {"reserved_bytes", p.reserved_bytes},
               {"host_bytes", p.host_bytes},
               {"disk_bytes", p.disk_bytes}};
  add_samples(p, json);
  for (const auto& [key, text] : p.sources) json["sources"][key] = text;
  return json;
}

Profile profile_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  refuse_unknown(object, std::to_array<std::string_view>(
                             {"name", "one_memory", "gemm_flops", "gemm_half_rows", "attention_flops",
                              "memory_bandwidth", "host_bandwidth", "launch_s", "links", "device_bytes",
                              "reserved_bytes", "host_bytes", "disk_bytes", "gemm", "attention", "ops", "sources"}));
  Profile p;
  p.name = object.string("name");
  p.one_memory = object.boolean_or("one_memory", false);
  p.gemm_flops = figure(object, "gemm_flops", 1, kMaxRate);
  p.gemm_half_rows = figure_or(object, "gemm_half_rows", 0, kMaxRows);
  p.attention_flops =
      in_range(object, "attention_flops", object.number_or("attention_flops", p.gemm_flops), 1, kMaxRate);
  p.memory_bandwidth = figure(object, "memory_bandwidth", 1, kMaxRate);
  p.host_bandwidth = figure(object, "host_bandwidth", 1, kMaxRate);
  p.launch_s = figure_or(object, "launch_s", 0, kMaxSeconds);
  p.links = links_from(object.object("links"), p.one_memory);
  p.device_bytes = object.integer("device_bytes", 0, kMaxBytes);
  p.reserved_bytes = object.integer_or("reserved_bytes", 0, 0, kMaxBytes);
  p.host_bytes = object.integer("host_bytes", 0, kMaxBytes);
  p.disk_bytes = object.integer_or("disk_bytes", 0, 0, kMaxBytes);
  p.gemm = gemm_from(object);
  p.attention = attention_from(object);
  p.ops = ops_from(object);
  p.sources = sources_from(object);
  check_disk(p, where);
  return p;
}

std::vector<std::string> unsourced_figures(const Json& json) {
  const auto sources = json.contains("sources") ? json.at("sources") : Json::object();
  std::vector<std::string> result;
  const auto check = [&](const std::string& key) {
    if (!sources.contains(key)) result.push_back(key);
  };
  for (const auto& [key, value] : json.items()) {
    if (value.is_number()) check(key);
  }
  if (json.contains("links")) {
    for (const auto& [key, value] : json.at("links").items()) check(std::string(kLinkPrefix) + key);
  }
  return result;
}

}  // namespace lazytrain::hw
