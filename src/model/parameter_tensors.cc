#include "model/parameter_tensors.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.h"

namespace lazytrain::model {

const TensorEntry& tensor_of(const graph::Parameter& parameter, const ModelFolder& folder) {
  const TensorEntry& tensor = folder.at(parameter.name);
  if (tensor.shape != parameter.shape) {
    throw InputError(
        "{}: tensor '{}' is {}, config.json asks for {}. Weights and config.json belong to different models: get both "
        "again.",
        tensor.file->where(), tensor.name, format_shape(tensor.shape), format_shape(parameter.shape));
  }
  return tensor;
}

void warn_unread(const graph::Graph& graph, const ModelFolder& folder) {
  std::set<std::string, std::less<>> known;
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Parameter& parameter : unit.params) known.insert(parameter.name);
  }
  std::map<std::string, int64_t> left_out;
  for (const TensorEntry* tensor : folder.tensors()) {
    if (known.contains(tensor->name)) continue;
    const auto prefix = std::ranges::find_if(
        graph.left_out, [&](const std::string& beginning) { return tensor->name.starts_with(beginning); });
    if (prefix != graph.left_out.end()) {
      ++left_out[*prefix];
      continue;
    }
    if (graph.tied && tensor->name == "lm_head.weight") {
      spdlog::info("{}: lm_head.weight is ignored: the configuration ties it to the embedding", folder.path().string());
    } else {
      spdlog::warn("{}: tensor '{}' is not part of this model and is not read", folder.path().string(), tensor->name);
    }
  }
  for (const auto& [prefix, count] : left_out) {
    spdlog::info("{}: {} tensors named {}* are no part of the text decoder and not read", folder.path().string(), count,
                 prefix);
  }
}

}  // namespace lazytrain::model
