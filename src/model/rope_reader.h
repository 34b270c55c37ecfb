// The rotary embedding of a configuration, in both spellings that transformers writes.
#pragma once

#include <string>
#include <vector>

#include "model/config_reader.h"
#include "model/family.h"
#include "model/rope.h"

namespace lazytrain::model {

// "rope_theta" and "partial_rotary_factor" beside or inside "rope_scaling" and "rope_parameters". UsageError for what
// contradicts itself and what the family does not compute; keys that were not understood are added to `unknown`.
RopeConfig read_rope(ConfigReader& reader, const FamilyReads& reads, int64_t head_dim,
                     std::vector<std::string>& unknown);

}  // namespace lazytrain::model
