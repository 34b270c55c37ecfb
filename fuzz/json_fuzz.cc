// Any bytes as JSON: refused with an InputError, or a document that survives being written and read again and whose
// typed access either gives a value in range or throws an InputError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace {

using namespace lazytrain;

template <typename Get>
void refuse_or(const Get& get) {
  try {
    get();
  } catch (const InputError&) {
  }
}

void access(const Json& json, int depth) {
  if (!json.is_object() || depth == 0) return;
  const JsonObject object(json, "fuzz");
  for (const auto& [key, value] : json.items()) {
    const std::string& name = key;
    refuse_or([&] {
      const int64_t number = object.integer(name, -5, 1000);
      if (number < -5 || number > 1000) std::abort();
    });
    refuse_or([&] { object.integer_or(name, 1, INT64_MIN, INT64_MAX); });
    refuse_or([&] { object.number_or(name, 0.5); });
    refuse_or([&] { object.boolean_or(name, true); });
    refuse_or([&] { object.string(name); });
    refuse_or([&] { access(object.object(name).json(), depth - 1); });
  }
  if (nearest("hidden_size", {"hidden_act", object.string_or("model_type", "x")}).size() > 1u << 20) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (shown(text).size() > 4 * 100 + 3) std::abort();
  refuse_or([&] {
    const Json json = parse_json(text, "fuzz");
    if (parse_json(json.dump(), "written") != json) std::abort();
    access(json, 8);
  });
  return 0;
}
