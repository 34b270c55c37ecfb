#include "hw/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace lazytrain::hw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

fs::path library_folder() { return fs::path(LAZYTRAIN_SOURCE_DIR) / "profiles"; }

Json example() {
  return parse_json(R"({"name": "example", "gemm_flops": 1e14, "memory_bandwidth": 1e12, "host_bandwidth": 1e11,
    "links": {"h2d": 2e10, "d2h": 3e10, "disk_read": 4e9, "disk_write": 3e9}, "device_bytes": 24000000000,
    "host_bytes": 64000000000})",
                    "example");
}

Profile parse(const Json& json) { return profile_from_json(json, "machine.json"); }

// The message of the InputError that parsing `json` raises.
std::string fault(const Json& json) {
  try {
    parse(json);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

Json with(const std::string& pointer, Json value) {
  Json json = example();
  json[Json::json_pointer(pointer)] = std::move(value);
  return json;
}

TEST(Profile, TakesWhatIsNotStatedFromTheRest) {
  const Profile p = parse(example());
  EXPECT_FALSE(p.one_memory);
  EXPECT_EQ(p.links.joint, 5e10);
  EXPECT_EQ(p.attention_rate(), 1e14);
  EXPECT_EQ(p.gemm_half_rows, 0);
  EXPECT_EQ(p.disk_bytes, 0);
  EXPECT_EQ(p.launch_s, 0);
  EXPECT_THAT(p.sources, IsEmpty());
  EXPECT_EQ(Profile{}.attention_rate(), 0);
}

TEST(Profile, GemmRateHalvesAtHalfRows) {
  Profile p = parse(with("/gemm_half_rows", 128));
  EXPECT_DOUBLE_EQ(p.gemm_rate(128), 0.5e14);
  EXPECT_DOUBLE_EQ(p.gemm_rate(384), 0.75e14);
  p.gemm_half_rows = 0;
  EXPECT_DOUBLE_EQ(p.gemm_rate(1), 1e14);
}

TEST(Profile, WhatIsWrittenIsRead) {
  Json json = with("/attention_flops", 4e13);
  json["gemm"] = parse_json(R"([{"m": 512, "n": 1024, "k": 256, "flops": 9e13}])", "gemm");
  json["attention"] = parse_json(
      R"([{"tokens": 1024, "context": 512, "query_heads": 8, "kv_heads": 2, "head_dim": 64, "flops": 3e13}])", "a");
  json["ops"] = parse_json(R"([{"op": "linear", "backward": true, "tokens": 64, "flops": 1e9, "bytes": 2e6,
    "seconds": 0.25}])",
                           "ops");
  json["disk_bytes"] = 1000;
  json["reserved_bytes"] = 5;
  json["launch_s"] = 1e-5;
  json["sources"] = {{"links.h2d", "measured"}, {"gemm_flops", "datasheet"}};
  const Profile p = parse(json);
  EXPECT_EQ(p.gemm.at(0).k, 256);
  EXPECT_EQ(p.attention.at(0).context, 512);
  ASSERT_EQ(p.ops.size(), 1u);
  EXPECT_TRUE(p.ops[0].backward);
  EXPECT_EQ(p.ops[0].seconds, 0.25);
  EXPECT_EQ(p.sources.at("links.h2d"), "measured");
  EXPECT_EQ(p.attention_rate(), 4e13);
  EXPECT_EQ(to_json(parse(to_json(p))), to_json(p));
}

TEST(Profile, HostileFiguresAreErrorsThatNameThem) {
  for (const char* key : {"gemm_flops", "memory_bandwidth", "host_bandwidth", "attention_flops"}) {
    for (const Json& value : {Json(0), Json(-1), Json("1e14"), Json(1e300), Json(true), Json::array({1}),
                              Json(std::numeric_limits<double>::infinity()), Json(std::nan(""))}) {
      EXPECT_THAT(fault(with(std::string("/") + key, value)), AllOf(HasSubstr("machine.json"), HasSubstr(key)))
          << value.dump();
    }
  }
  for (const char* key : {"device_bytes", "host_bytes", "disk_bytes", "reserved_bytes"}) {
    for (const Json& value : {Json(-1), Json(1.5), Json(1e30), Json(INT64_MAX), Json("8GB")}) {
      EXPECT_THAT(fault(with(std::string("/") + key, value)), HasSubstr(key)) << value.dump();
    }
  }
  for (const char* key : {"h2d", "d2h", "joint", "disk_read", "disk_write"}) {
    for (const Json& value : {Json(-1), Json("fast"), Json(1e300), Json::object()}) {
      EXPECT_THAT(fault(with(std::string("/links/") + key, value)), HasSubstr(key)) << value.dump();
    }
  }
  for (const char* key : {"launch_s", "gemm_half_rows"}) {
    EXPECT_THAT(fault(with(std::string("/") + key, -1e-6)), HasSubstr(key));
    EXPECT_THAT(fault(with(std::string("/") + key, 1e12)), HasSubstr(key));
  }
  // JSON has no NaN or infinity; what others write for them is no JSON, and a number beyond double is none of ours.
  EXPECT_THROW(parse_json(R"({"gemm_flops": NaN})", "machine.json"), InputError);
  EXPECT_THROW(parse_json(R"({"gemm_flops": 1e999})", "machine.json"), InputError);
}

TEST(Profile, HostileSamplesAreErrorsThatNameThem) {
  const Json good = {{"op", "linear"}, {"tokens", 64}, {"flops", 1e9}, {"bytes", 2e6}, {"seconds", 0.25}};
  const auto fault_of = [&](const std::string& key, const Json& value) {
    Json sample = good;
    sample[key] = value;
    return fault(with("/ops", Json::array({sample})));
  };
  EXPECT_EQ(fault_of("backward", false), "no error");
  EXPECT_THAT(fault_of("seconds", -1), AllOf(HasSubstr("ops[0]"), HasSubstr("seconds")));
  EXPECT_THAT(fault_of("tokens", 0), HasSubstr("tokens"));
  EXPECT_THAT(fault_of("flops", 1e300), HasSubstr("flops"));
  EXPECT_THAT(fault_of("op", 7), HasSubstr("op"));
  EXPECT_THAT(fault_of("speed", 7), HasSubstr("speed"));
}

TEST(Profile, ContradictionsAreErrors) {
  EXPECT_THAT(fault(with("/links/h2d", 0)), HasSubstr("h2d"));  // two memories without a link
  EXPECT_THAT(fault(with("/links/joint", 0)), HasSubstr("joint"));
  Json one = with("/one_memory", true);
  one["links"] = Json::object();
  EXPECT_EQ(parse(one).links.h2d, 0);
  Json disk = with("/disk_bytes", 1000);
  disk["links"].erase("disk_write");
  EXPECT_THAT(fault(disk), HasSubstr("disk_write"));
  EXPECT_THAT(fault(with("/gemm_flop", 1)), HasSubstr("nearest is \"gemm_flops\""));
  EXPECT_THAT(fault(with("/links/h2dd", 1)), HasSubstr("h2dd"));
  EXPECT_THAT(fault(with("/sources", {{"speed", "me"}})), HasSubstr("speed"));
  EXPECT_THAT(fault(with("/sources", {{"gemm_flops", 7}})), HasSubstr("gemm_flops"));
  EXPECT_THAT(fault(with("/gemm", {{"m", 1}})), HasSubstr("gemm"));
  EXPECT_THAT(fault(with("/gemm", Json::array({{{"m", 0}, {"n", 1}, {"k", 1}, {"flops", 1}}}))), HasSubstr("gemm[0]"));
  EXPECT_THAT(fault(with("/gemm", Json(std::vector<Json>(1001, Json::object())))), HasSubstr("gemm"));
  for (const char* key :
       {"name", "gemm_flops", "memory_bandwidth", "host_bandwidth", "links", "device_bytes", "host_bytes"}) {
    Json json = example();
    json.erase(key);
    EXPECT_THAT(fault(json), HasSubstr(key));
  }
  EXPECT_THAT(fault(Json::array()), HasSubstr("object"));
}

TEST(ProfileLibrary, HoldsEveryFileOfTheFolder) {
  std::set<std::string> files, names;
  for (const auto& entry : fs::directory_iterator(library_folder())) files.insert(entry.path().stem().string());
  std::vector<std::string> in_order;
  for (const Profile& p : library_profiles()) in_order.push_back(p.name);
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  names.insert(in_order.begin(), in_order.end());
  EXPECT_EQ(names, files);  // and each file's name is the profile's
  for (const char* name : {"h800-paper", "h800", "h100-sxm", "h200", "a100-80", "gh200", "rtx3090", "rtx4090",
                           "rtx5090", "rtx3090-64gb", "rtx4090-128gb"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(ProfileLibrary, EveryFigureHasASource) {
  for (const auto& entry : fs::directory_iterator(library_folder())) {
    const Json json = read_json(entry.path());
    EXPECT_THAT(unsourced_figures(json), IsEmpty()) << entry.path();
    for (const char* key : {"gemm_half_rows", "attention_flops", "launch_s", "reserved_bytes", "disk_bytes"}) {
      EXPECT_TRUE(json.contains(key)) << entry.path() << " " << key;
    }
  }
  EXPECT_THAT(unsourced_figures(with("/sources", {{"gemm_flops", "x"}, {"links.h2d", "x"}})),
              ::testing::UnorderedElementsAre("memory_bandwidth", "host_bandwidth", "device_bytes", "host_bytes",
                                              "links.d2h", "links.disk_read", "links.disk_write"));
}

TEST(ProfileLibrary, FiguresAreThoseOfRealMachines) {
  for (const Profile& p : library_profiles()) {
    SCOPED_TRACE(p.name);
    EXPECT_FALSE(p.one_memory);
    EXPECT_GT(p.gemm_flops, 5e13);
    EXPECT_LT(p.gemm_flops, 7e14);
    EXPECT_LE(p.attention_rate(), p.gemm_flops);
    EXPECT_GT(p.links.joint, std::max(p.links.h2d, p.links.d2h));
    EXPECT_LE(p.links.joint, p.links.h2d + p.links.d2h);
    EXPECT_GT(p.device_bytes, int64_t{20'000'000'000});
    EXPECT_GT(p.host_bytes, int64_t{50'000'000'000});
    EXPECT_GT(p.disk_bytes, 0);
  }
  const Profile paper = find_profile("h800-paper");
  EXPECT_EQ(paper.links.h2d, 12e9);
  EXPECT_EQ(paper.links.d2h, 12e9);
  EXPECT_EQ(paper.links.joint, 24e9);
  EXPECT_EQ(paper.links.disk_read, 2.83e9);
  EXPECT_EQ(paper.links.disk_write, 3.35e9);
  EXPECT_EQ(paper.device_bytes, int64_t{70'000'000'000});
  EXPECT_LT(find_profile("rtx4090-64gb").host_bytes, int64_t{64'000'000'000});
}

TEST(FindProfile, TakesANameOrAFile) {
  EXPECT_EQ(find_profile("rtx4090").name, "rtx4090");
  const fs::path file = fs::path(::testing::TempDir()) / "find_profile_machine.json";
  write_file(file, example().dump());
  EXPECT_EQ(find_profile(file.string()).name, "example");
  write_file(file, "{");
  EXPECT_THROW(find_profile(file.string()), InputError);
  fs::remove(file);
}

TEST(FindProfile, NamesTheNearest) {
  const auto message = [](const std::string& name) -> std::string {
    try {
      find_profile(name);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("rtx409"), HasSubstr("nearest is 'rtx4090'"));
  EXPECT_THAT(message("h100"), AllOf(HasSubstr("h100-sxm"), HasSubstr("gh200")));  // the list has them all
  EXPECT_THAT(message("/no/such/file.json"), HasSubstr("lazytrain profile --out"));
  EXPECT_THAT(message(::testing::TempDir()), HasSubstr("neither"));
  EXPECT_THAT(message(""), HasSubstr("Known are"));
  EXPECT_THAT(message(std::string(100'000, 'x')), HasSubstr("neither"));
}

}  // namespace
}  // namespace lazytrain::hw
