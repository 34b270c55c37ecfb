// The filters by what they work on; apply_filter looks a name up in both tables.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/runtime.h"

namespace lazytrain::text::jinja {

using Filter = Value (*)(std::string_view name, const Value& value, Args& args, Runtime& runtime);

struct FilterEntry {
  std::string_view name;
  Filter filter;
};

std::span<const FilterEntry> scalar_filters();    // texts and numbers
std::span<const FilterEntry> sequence_filters();  // what can be iterated

// Follows "a.b.0" of attribute= as Jinja does: names and indices between dots.
Value follow(const Value& value, const Value& path, Runtime& runtime);

}  // namespace lazytrain::text::jinja
