#include "train/export.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/family.h"
#include "runtime/state_testing.h"
#include "runtime/testing.h"

namespace lazytrain::train {
namespace {

using namespace runtime::testing;

TEST(Export, IsTheSameFileWhereverTheStateLies) {
  const model::ModelConfig config = tiny_qwen2(true);
  const graph::Graph graph = model::build_graph(config);
  runtime::ModelState one(graph, DType::kBF16);
  randomize(graph, one, 8);
  const TemporaryFolder folder;
  const auto exported = [&](const runtime::ModelState& state, DType dtype, const char* name) {
    const std::filesystem::path target = folder.path() / name;
    export_model(config, state, target, target, dtype);
    return read_file(target / "model.safetensors", 1 << 20);
  };
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const std::string expected = exported(one, dtype, "one");
    EXPECT_GT(std::ssize(expected), graph.parameter_count() * size_of(dtype));
    for (uint64_t seed = 0; seed < 4; ++seed) {
      PlacedState placed(graph, DType::kBF16,
                         random_places(graph, DType::kBF16, seed % 2 == 0 ? kDiskOnly : kAllTiers, seed));
      copy_state(one, *placed);
      EXPECT_TRUE(exported(*placed, dtype, "placed") == expected) << name_of(dtype) << " " << seed;
    }
  }
}

}  // namespace
}  // namespace lazytrain::train
