// The functions every template sees: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include "text/jinja/runtime.h"

namespace lazytrain::text::jinja {

void define_functions(Runtime& runtime);

}  // namespace lazytrain::text::jinja
