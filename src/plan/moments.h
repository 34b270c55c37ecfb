// Where the optimizer's moments lie in a unit's state: which parameter has which format, and how the moments of a piece
// of the unit's block stand one behind the other. The one source of their bytes for planning and running.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "optim/state_layout.h"

namespace lazytrain::plan {

// By parameter of a unit; that of a tied one means nothing, its moments are the embedding's.
using UnitFormats = std::vector<optim::MomentFormat>;

// By unit, under a value of optimizer.state. Throws UsageError as optim::state_setting_from_name.
std::vector<UnitFormats> moment_formats(const graph::Graph& graph, std::string_view optimizer_state);

// The moments of those elements of a parameter that lie in a piece.
struct ParameterMoments {
  int parameter = 0;
  int64_t first = 0;           // element of the parameter, the start of a block
  optim::MomentLayout layout;  // offsets from the begin of the piece's moments
};
struct PieceMoments {
  std::vector<ParameterMoments> parameters;
  int64_t bytes = 0;
};

// Of elements [first, first + elements) of the unit's block. For fp32 8 bytes an element where first and elements are
// multiples of 64. Throws std::logic_error when may_cut() is false at either end.
PieceMoments moments_of_piece(const graph::Unit& unit, const UnitFormats& formats, int64_t first, int64_t elements);

// Whether no block of 8-bit moments has elements on both sides of that element of the unit's block.
bool may_cut(const graph::Unit& unit, const UnitFormats& formats, int64_t at);

// Bytes of the moments of each unit in one piece.
std::vector<int64_t> optimizer_bytes(const graph::Graph& graph, std::string_view optimizer_state);

}  // namespace lazytrain::plan
