// The "layer_types" of a configuration.
#pragma once

#include <initializer_list>
#include <vector>

#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

// One type a layer, or nothing when the key is absent. InputError when the list has another length than `layers`,
// UsageError naming the layer for a type that is not in `supported`.
std::vector<LayerType> read_layer_types(ConfigReader& reader, int64_t layers,
                                        std::initializer_list<LayerType> supported);

}  // namespace lazytrain::model
