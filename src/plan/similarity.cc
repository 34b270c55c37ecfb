#include "plan/similarity.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "graph/pass.h"
#include "plan/cost.h"

namespace lazytrain::plan {
namespace {

// Of the layer in the middle.
struct Layer {
  double forward_s = 0;
  double weight_bytes = 0;
  double boundary_bytes = 0;
};

Layer layer_of(const graph::Graph& graph, const Shape& shape, DType compute, const hw::Profile& machine) {
  const graph::Unit& unit = graph.units[graph.units.size() / 2];
  const graph::Dims dims{shape.batch * shape.seq, shape.seq, size_of(compute)};
  Layer layer;
  layer.forward_s = pass_seconds(unit, graph::forward_pass(unit, {}, dims), dims, machine);
  layer.weight_bytes = 2 * static_cast<double>(unit.block_elements);
  layer.boundary_bytes = static_cast<double>(graph::value_bytes(unit.values[static_cast<size_t>(unit.output)], dims));
  return layer;
}

double all_boundaries(const graph::Graph& graph, const Layer& layer) { return graph.layers() * layer.boundary_bytes; }

// By the parameters that a token is multiplied with.
double head_share(const graph::Graph& graph) {
  const double head = static_cast<double>(graph.hidden) * static_cast<double>(graph.vocabulary);
  return head / static_cast<double>(graph.units[graph.units.size() / 2].parameter_count());
}

}  // namespace

Similarity similar_machine(const Reference& reference, const graph::Graph& graph, const Shape& shape, DType compute,
                           const hw::Profile& here, int64_t scratch_bytes) {
  const Layer there = layer_of(reference.graph, reference.shape, DType::kBF16, reference.machine);
  const Layer own = layer_of(graph, shape, compute, here);
  if (there.forward_s <= 0 || own.forward_s <= 0) {
    throw UsageError("device.like: a layer of {} takes no time on {}", reference.graph.family, reference.machine.name);
  }
  const hw::Scaling scaling{.time = own.forward_s / there.forward_s,
                            .transfer = own.weight_bytes / there.weight_bytes,
                            .device = all_boundaries(graph, own) / all_boundaries(reference.graph, there)};
  Similarity result{.emulation = hw::emulate(reference.machine, here, scaling), .ratios = {}};
  const hw::Profile& machine = result.emulation.machine;
  const auto add = [&](std::string_view name, double of_reference, double of_own) {
    Similar& ratio = result.ratios.emplace_back();
    ratio.name = name;
    ratio.there = of_reference;
    ratio.here = of_own;
  };
  const auto ratio = [&](std::string_view name, const auto& of) {
    add(name, of(there, reference.machine), of(own, machine));
  };
  ratio("boundary over h2d",
        [](const Layer& l, const hw::Profile& m) { return l.boundary_bytes / m.links.h2d / l.forward_s; });
  ratio("weights over h2d",
        [](const Layer& l, const hw::Profile& m) { return l.weight_bytes / m.links.h2d / l.forward_s; });
  ratio("host update", [](const Layer& l, const hw::Profile& m) {
    return update_bytes(8) * l.weight_bytes / 2 / m.host_bandwidth / l.forward_s;
  });
  add("device memory over all boundaries",
      static_cast<double>(reference.machine.device_bytes) / all_boundaries(reference.graph, there),
      static_cast<double>(machine.device_bytes) / all_boundaries(graph, own));
  add("head over a layer", head_share(reference.graph), head_share(graph));
  add("layers", static_cast<double>(reference.graph.layers()), static_cast<double>(graph.layers()));
  result.emulation.machine.device_bytes += scratch_bytes;
  return result;
}

std::string describe(const Similarity& similarity) {
  std::string text;
  for (const Similar& ratio : similarity.ratios) {
    text +=
        fmt::format("{}{}: {:.3g} there, {:.3g} here", text.empty() ? "" : "\n", ratio.name, ratio.there, ratio.here);
  }
  return text;
}

}  // namespace lazytrain::plan
