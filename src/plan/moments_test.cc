#include "plan/moments.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/arith.h"
#include "graph/testing.h"
#include "plan/program.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using optim::MomentFormat;
using optim::StateKind;

constexpr MomentFormat k8Bit{StateKind::k8Bit, 256};

void add(graph::Unit& unit, std::vector<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t n : shape) elements *= n;
  unit.params.push_back({.name = "p", .shape = std::move(shape), .elements = elements, .offset = unit.block_elements});
  unit.block_elements += align_up(elements, 64);
}

// A norm weight before matrices of 10,000 and 8,192 elements, and a small one between.
graph::Unit layer() {
  graph::Unit unit;
  unit.name = "layer.0";
  for (const auto& shape : std::vector<std::vector<int64_t>>{{64}, {100, 100}, {50, 30}, {64, 128}}) add(unit, shape);
  return unit;
}

graph::Graph model() {
  graph::Graph graph;
  graph::Unit embedding, head;
  embedding.kind = graph::UnitKind::kEmbedding;
  head.kind = graph::UnitKind::kHead;
  add(embedding, {80, 100});
  add(head, {100});
  add(head, {80, 100});
  graph.units = {embedding, layer(), head};
  return graph;
}

TEST(Moments, FormatsGoByRoleAndSize) {
  const auto formats = moment_formats(model(), "8bit");
  const MomentFormat fp32;
  EXPECT_EQ(formats[0], UnitFormats{fp32});
  EXPECT_EQ(formats[1], (UnitFormats{fp32, k8Bit, fp32, k8Bit}));
  EXPECT_EQ(formats[2], (UnitFormats{fp32, k8Bit}));
  EXPECT_EQ(moment_formats(model(), "8bit+embedding-head")[0], UnitFormats{k8Bit});
  EXPECT_EQ(moment_formats(model(), "8bit+embedding-head")[2], (UnitFormats{fp32, fp32}));
  // The largest matrix alone is more than a fifth of the 35,856 parameters.
  EXPECT_EQ(moment_formats(model(), "hybrid:0.2")[1][1], (MomentFormat{StateKind::k8Bit, 4096}));
  EXPECT_EQ(moment_formats(model(), "hybrid:0.2")[1][3], fp32);
}

TEST(Moments, BytesAreThoseOfTheArrays) {
  for (const graph::Unit& unit : model().units) {
    const UnitFormats plain(unit.params.size());
    EXPECT_EQ(moments_of_piece(unit, plain, 0, unit.block_elements).bytes, 8 * unit.block_elements);
  }
  // 10,000: 40 blocks, codes padded to 10,240 and scales to 512 bytes; 8,192: 32 blocks.
  const int64_t expected = 8 * 64 + (2 * 10240 + 512) + 8 * 1536 + (2 * 8192 + 256);
  EXPECT_EQ(optimizer_bytes(model(), "8bit")[1], expected);
}

TEST(Moments, PiecesMakeTheWhole) {
  const graph::Unit unit = layer();
  const UnitFormats formats = moment_formats(model(), "8bit")[1];
  int64_t cuts = 0;
  for (int64_t at = 0; at <= unit.block_elements; at += 64) {
    if (!may_cut(unit, formats, at)) {
      EXPECT_THROW(moments_of_piece(unit, formats, 0, at), std::logic_error);
      continue;
    }
    ++cuts;
    std::vector<int64_t> elements(unit.params.size()), scales(unit.params.size());
    for (const auto& [first, count] : {std::pair{int64_t{0}, at}, {at, unit.block_elements - at}}) {
      for (const ParameterMoments& part : moments_of_piece(unit, formats, first, count).parameters) {
        const auto p = static_cast<size_t>(part.parameter);
        EXPECT_EQ(part.first, elements[p]);
        elements[p] += part.layout.elements;
        if (part.layout.format == k8Bit) scales[p] += part.layout.array("scales").elements;
      }
    }
    for (size_t p = 0; p < unit.params.size(); ++p) EXPECT_EQ(elements[p], unit.params[p].elements) << at;
    EXPECT_EQ(scales, (std::vector<int64_t>{0, 80, 0, 64})) << at;
  }
  // 1 before the norm, its end, 39 in the first matrix, its end, 24 of the small one, 32 from the second's begin on,
  // and the end of the block.
  EXPECT_GT(cuts, 90);
  EXPECT_LT(cuts, 110);
}

// Layers of three million parameters, whose pieces on disk begin at blocks where they can.
TEST(Moments, PiecesOnDiskBeginAtBlocks) {
  for (const bool aligned : {false, true}) {
    graph::Graph graph = graph::testing::toy_graph(2, false);
    graph::Unit& unit = graph.units[1];
    ASSERT_NE(unit.block_elements % 256, 0);
    if (aligned) add(unit, {align_up(unit.block_elements, 4096) - unit.block_elements});
    add(unit, {3000, 1024});
    Policy policy = resident(graph, {1, 1, 8});
    policy.units[1].weight_home = Tier::kHost;
    policy.units[1].optimizer_home = Tier::kDisk;
    const hw::Profile machine = testing::tiered_machine();
    for (const std::string state : {"fp32", "8bit", "8bit:4096"}) {
      policy.optimizer_state = state;
      const Program program = compile(graph, policy, {.machine = &machine, .scratch_bytes = {}});
      ASSERT_EQ(program.state[1].size(), aligned || state == "fp32" ? 2u : 1u);
      int64_t next = 0, bytes = 0;
      for (const StatePiece& piece : program.state[1]) {
        EXPECT_EQ(piece.first, next);
        EXPECT_EQ(piece.first % 2048, 0);
        EXPECT_TRUE(may_cut(unit, program.moments[1], piece.first));
        next += piece.elements;
        bytes +=
            align_up(moments_of_piece(unit, program.moments[1], piece.first, piece.elements).bytes, kDiskAlignment);
      }
      EXPECT_EQ(next, unit.block_elements);
      EXPECT_EQ(program.tier_bytes[2], bytes);
      EXPECT_EQ(validate(program), std::vector<std::string>{});
    }
  }
}

}  // namespace
}  // namespace lazytrain::plan
