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
// over boundary bytes. Boundary bytes over the links follow when tokens x hidden size go with the weights: the ratio
// says how near that is.
Similarity similar_machine(const Reference& reference, const graph::Graph& graph, const Shape& shape, DType compute,
                           const hw::Profile& here);

// "boundary over h2d in a layer's forward: 0.42 there, 0.42 here", a line each.
std::string describe(const Similarity& similarity);

}  // namespace lazytrain::plan
