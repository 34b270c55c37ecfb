#include "plan/mip/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "plan/mip/instance_testing.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::plan {
namespace {

using ::testing::HasSubstr;
using testing::random_instance;

TEST(Instance, JsonRoundTrip) {
  for (const bool extended : {false, true}) {
    Instance instance = random_instance({3, true, true, extended, extended, !extended, extended}, 5);
    EXPECT_EQ(instance_from_json(to_json(instance), "i.json"), instance);
    instance.reference = ReferenceSolution{"SCIP", "optimal", 1.5, 0.1, 2};
    EXPECT_EQ(instance_from_json(parse_json(to_json(instance).dump(), "i.json"), "i.json"), instance);
  }
}

void expect_refused(const std::function<void(Json&)>& change, const std::string& words) {
  Json json = to_json(random_instance({3, true, true, true}, 1));
  change(json);
  try {
    instance_from_json(json, "i.json");
    ADD_FAILURE() << "taken: " << words;
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("i.json"));
    EXPECT_THAT(e.what(), HasSubstr(words));
  }
}

TEST(Instance, RefusalsNameTheKey) {
  expect_refused([](Json& j) { j.erase("units"); }, "\"units\" is missing");
  expect_refused([](Json& j) { j["units"] = 4; }, "\"forward_s\" has 3 entries, expected 4");
  expect_refused([](Json& j) { j["units"] = 5000; }, "units");
  expect_refused([](Json& j) { j["weight_gb"][1] = -1; }, "weight_gb[1]");
  expect_refused([](Json& j) { j["weight_gb"][1] = "x"; }, "\"weight_gb\"[1]");
  expect_refused([](Json& j) { j["weight_gb"][1] = std::numeric_limits<double>::infinity(); }, "weight_gb[1]");
  expect_refused([](Json& j) { j["weight_gb"][1] = NAN; }, "weight_gb[1]");
  expect_refused([](Json& j) { j["menu"][0] = Json::array(); }, "menu[0]");
  expect_refused([](Json& j) { j["menu"][2][0]["retained_gb"] = 1; }, "menu[2][0]");
  expect_refused([](Json& j) { j["menu"][2][1]["recompute_s"] = -1; }, "recompute_s");
  expect_refused([](Json& j) { j["menu"].erase(1); }, "\"menu\" has 2 entries");
  expect_refused([](Json& j) { j["links_gbs"]["joint"] = 0; }, "links_gbs.joint");
  expect_refused([](Json& j) { j["links_gbs"]["disk_read"] = 0; }, "links_gbs.disk_read");
  expect_refused([](Json& j) { j["head"].erase("weight_gb"); }, "weight_gb");
  expect_refused([](Json& j) { j["budget_gb"]["host"] = -2; }, "budget_gb.host");
  expect_refused([](Json& j) { j["max_block"] = 0; }, "max_block");
  expect_refused([](Json& j) { j["gap"] = -0.1; }, "gap");
  expect_refused([](Json& j) { j.erase("host_weight_gb"); }, "host_weight_gb");
  expect_refused([](Json& j) { j["formulation"] = "paper"; }, "formulation");
  expect_refused([](Json& j) { j["menu"][0][0]["retained"] = {1}; }, "retained");
  expect_refused([](Json& j) { j = Json::array(); }, "object");
}

TEST(Instance, ALinkThatNothingUsesMayStandStill) {
  Instance instance = random_instance({3, true, false}, 1);
  instance.links_gbs.disk_read = instance.links_gbs.disk_write = 0;
  EXPECT_EQ(instance_from_json(to_json(instance), "i.json"), instance);
}

TEST(Instance, AProgramThatWouldFillTheMemoryIsRefused) {
  Instance instance = random_instance({4096, true, true}, 1);
  instance.max_block = 4096;
  EXPECT_THROW(build_problem(instance), InputError);
}

}  // namespace
}  // namespace lazytrain::plan
