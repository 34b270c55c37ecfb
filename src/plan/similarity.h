// A small model on a machine that is to it what a large machine is to a large model.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "hw/emulation.h"
#include "plan/heuristics.h"

namespace lazytrain::plan {

// What the small run is measured against: a model, a machine, and its step.
struct Reference {
  const graph::Graph& graph;
  const hw::Profile& machine;
  Shape shape;
};

// A ratio that decides how a schedule behaves, of the reference and of the emulated run.
struct Similar {
  std::string name;
  double there = 0;
  double here = 0;
};

struct Similarity {
  hw::Emulation emulation;
  std::vector<Similar> ratios;
};

// Emulates the machine on which `graph` at `shape` has the reference's ratios: a layer's weights over the links, and
// its host update, over its forward time (a layer in the middle; `here` gives this machine's times), and device memory
// over the bytes of all boundaries, so that models of unequally many layers are alike too. Boundary bytes over the
// links follow when tokens x hidden size go with the weights, and the head's share of a step when the vocabulary goes
// with them: the ratios say how near that is. `scratch_bytes`: what this machine's kernels take of the device, of which
// plans of the reference's machine count nothing; it stands beside the scaled memory.
Similarity similar_machine(const Reference& reference, const graph::Graph& graph, const Shape& shape, DType compute,
                           const hw::Profile& here, int64_t scratch_bytes);

// "boundary over h2d in a layer's forward: 0.42 there, 0.42 here", a line each.
std::string describe(const Similarity& similarity);

}  // namespace lazytrain::plan
