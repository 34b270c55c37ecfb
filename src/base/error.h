// Errors, one type a kind of failure. cli/main.cc catches once and maps the type to the exit code.
// A message says what is wrong, where (file, key, tensor), what was expected and what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lazytrain {

class Error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// Wrong usage or configuration, a plan of another model, machine or shape, a model that asks for maths we do not have:
// exit code 2.
struct UsageError : Error {
  using Error::Error;
};

// A file whose content is broken or does not belong: safetensors, tokenizer, data, checkpoint: exit code 1.
struct InputError : Error {
  using Error::Error;
};

// The plan does not fit the budgets: exit code 3.
struct Infeasible : Error {
  using Error::Error;
};

// Something failed while running: disk full, non-finite gradients, a device fault: exit code 1.
struct RunError : Error {
  using Error::Error;
};

}  // namespace lazytrain
