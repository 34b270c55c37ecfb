// The bounds within which a template runs, so that a hostile one ends, and where errors of a running template are made.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/error.h"

namespace lazytrain::text::jinja {

constexpr int64_t kMaxSourceBytes = int64_t{1} << 20;
constexpr int64_t kMaxTextBytes = int64_t{64} << 20;  // of one string, and of the output
constexpr int64_t kMaxSteps = 10'000'000;             // nodes evaluated, items touched, 32 bytes of text handled
constexpr int kMaxRuntimeDepth = 400;                 // nested nodes, macro calls included
constexpr int kMaxSyntaxDepth = 150;                  // nested nodes of the source
constexpr int kMaxValueDepth = 400;                   // containers within containers

class Budget {
 public:
  explicit Budget(std::string where) : where_(std::move(where)) {}

  void tick(int64_t steps = 1) {
    steps_ += steps;
    if (steps_ > kMaxSteps) fail("the template does not end within {} steps", kMaxSteps);
  }
  // Accounts for text of this size being read or made.
  void text(size_t bytes) {
    if (bytes > static_cast<size_t>(kMaxTextBytes)) fail("a text grows beyond {} MiB", kMaxTextBytes >> 20);
    tick(1 + static_cast<int64_t>(bytes / 32));
  }

  int line = 1;  // of the node that is being evaluated

  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) const {
    throw RunError("{}: line {}: {}", where_, line, fmt::format(format, std::forward<A>(args)...));
  }
  // For what Jinja knows and this interpreter does not.
  template <typename... A>
  [[noreturn]] void unsupported(fmt::format_string<A...> format, A&&... args) const {
    throw UsageError("{}: line {}: {} is not among the constructs of chat templates known here", where_, line,
                     fmt::format(format, std::forward<A>(args)...));
  }

 private:
  std::string where_;
  int64_t steps_ = 0;
};

}  // namespace lazytrain::text::jinja
