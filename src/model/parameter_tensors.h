// Which tensor of a model folder holds which parameter of a graph.
#pragma once

#include "graph/graph.h"
#include "model/checkpoint_reader.h"

namespace lazytrain::model {

// The tensor of the parameter's name. Throws InputError naming the tensor when it is missing or has another shape, with
// the shape that config.json asks for.
const TensorEntry& tensor_of(const graph::Parameter& parameter, const ModelFolder& folder);

// Logs the tensors that the graph does not read: a warning each, except the copy of a tied head, and one line for all
// that begin as graph.left_out says.
void warn_unread(const graph::Graph& graph, const ModelFolder& folder);

}  // namespace lazytrain::model
