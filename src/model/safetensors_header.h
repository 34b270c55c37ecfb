// The JSON header of a safetensors file, read as events so that no input makes it hold more than the format's content.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lazytrain::model {

struct FormatType {
  std::string_view name;
  int64_t bits;
};

// A tensor as the header declares it; `begin` and `end` are bytes from the start of the data. Nothing but the header's
// structure has been checked: the offsets may lie anywhere.
struct DeclaredTensor {
  std::string name;
  const FormatType* type = nullptr;  // never null in a header that was returned
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<DeclaredTensor> tensors;  // as they stand in the file, names distinct
  std::map<std::string, std::string> metadata;
};

// Throws InputError with `where`, the tensor, what was found and what was expected.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::string_view where);

}  // namespace lazytrain::model
