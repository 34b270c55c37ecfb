#include "model/layer_types.h"

#include <fmt/ranges.h>

#include <string_view>

#include "base/error.h"

namespace lazytrain::model {
namespace {

std::string_view name_of(LayerType type) {
  switch (type) {
    case LayerType::kFullAttention:
      return "full_attention";
    case LayerType::kSlidingAttention:
      return "sliding_attention";
    case LayerType::kLinearAttention:
      return "linear_attention";
  }
  return "";
}

}  // namespace

std::vector<LayerType> read_layer_types(ConfigReader& reader, int64_t layers,
                                        std::initializer_list<LayerType> supported) {
  std::vector<LayerType> result;
  if (!reader.has("layer_types")) return result;
  const Json& types = reader.value("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    throw InputError("{}: \"layer_types\" is {}, expected a list of {} names, one a layer (num_hidden_layers)",
                     reader.where(), shown(types.dump(), 80), layers);
  }
  std::vector<std::string_view> names;
  for (const LayerType type : supported) names.push_back(name_of(type));
  for (size_t i = 0; i < types.size(); ++i) {
    for (const LayerType type : supported) {
      if (types[i] == name_of(type)) result.push_back(type);
    }
    if (result.size() == i + 1) continue;
    throw UsageError("{}: \"layer_types\" has {} at layer {}: supported for this model are {}", reader.where(),
                     shown(types[i].dump(), 80), i, fmt::join(names, ", "));
  }
  return result;
}

}  // namespace lazytrain::model
