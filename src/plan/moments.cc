#include "plan/moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace lazytrain::plan {
namespace {

optim::ParameterRole role_of(const graph::Unit& unit, const graph::Parameter& parameter) {
  if (!parameter.decays()) return optim::ParameterRole::kVector;
  switch (unit.kind) {
    case graph::UnitKind::kEmbedding:
      return optim::ParameterRole::kEmbedding;
    case graph::UnitKind::kHead:
      return optim::ParameterRole::kHead;
    case graph::UnitKind::kLayer:
      return optim::ParameterRole::kMatrix;
  }
  return optim::ParameterRole::kMatrix;
}

}  // namespace

std::vector<UnitFormats> moment_formats(const graph::Graph& graph, std::string_view optimizer_state) {
  std::vector<optim::StateParameter> model;
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Parameter& parameter : unit.params) {
      if (!parameter.tied) model.push_back({parameter.elements, role_of(unit, parameter)});
    }
  }
  const auto formats = optim::moment_formats(optim::state_setting_from_name(optimizer_state), model);
  std::vector<UnitFormats> by_unit;
  size_t next = 0;
  for (const graph::Unit& unit : graph.units) {
    UnitFormats of_unit;
    for (const graph::Parameter& parameter : unit.params) {
      of_unit.push_back(parameter.tied ? optim::MomentFormat{} : formats[next++]);
    }
    by_unit.push_back(std::move(of_unit));
  }
  return by_unit;
}

PieceMoments moments_of_piece(const graph::Unit& unit, const UnitFormats& formats, int64_t first, int64_t elements) {
  if (!may_cut(unit, formats, first) || !may_cut(unit, formats, first + elements)) {
    throw std::logic_error(fmt::format("elements {} to {} of {} cut a block of its 8-bit optimizer state", first,
                                       first + elements, unit.name));
  }
  PieceMoments piece;
  std::vector<optim::StateParameter> parts;
  UnitFormats part_formats;
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    const int64_t begin = std::max<int64_t>(0, first - parameter.offset);
    const int64_t end = std::min(parameter.elements, first + elements - parameter.offset);
    if (parameter.tied || begin >= end) continue;
    piece.parameters.push_back({.parameter = static_cast<int>(p), .first = begin, .layout = {}});
    parts.push_back({end - begin, role_of(unit, parameter)});
    part_formats.push_back(formats[p]);
  }
  optim::UnitMoments moments = optim::unit_moments(parts, part_formats);
  for (size_t i = 0; i < piece.parameters.size(); ++i) piece.parameters[i].layout = std::move(moments.parameters[i]);
  piece.bytes = moments.bytes;
  return piece;
}

bool may_cut(const graph::Unit& unit, const UnitFormats& formats, int64_t at) {
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    const int64_t inside = at - parameter.offset;
    if (parameter.tied || inside <= 0 || inside >= parameter.elements) continue;
    if (formats[p].kind == optim::StateKind::k8Bit && inside % formats[p].block != 0) return false;
  }
  return true;
}

std::vector<int64_t> optimizer_bytes(const graph::Graph& graph, std::string_view optimizer_state) {
  const auto formats = moment_formats(graph, optimizer_state);
  std::vector<int64_t> bytes;
  for (size_t u = 0; u < graph.units.size(); ++u) {
    bytes.push_back(moments_of_piece(graph.units[u], formats[u], 0, graph.units[u].block_elements).bytes);
  }
  return bytes;
}

}  // namespace lazytrain::plan
