#include "text/jinja/filters.h"

#include "text/jinja/filter_tables.h"

namespace lazytrain::text::jinja {
namespace {

const FilterEntry* entry_of(std::string_view name) {
  for (const auto table : {scalar_filters(), sequence_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return entry_of(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  const FilterEntry* entry = entry_of(name);
  if (entry == nullptr) runtime.budget().unsupported("the filter '{}'", name);
  runtime.budget().tick();
  return entry->filter(name, value, args, runtime);
}

}  // namespace lazytrain::text::jinja
