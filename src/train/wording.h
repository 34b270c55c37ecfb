// What a run says to the person at the terminal.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lazytrain::train {

// Writes to standard error. That it is full or closed ends no run: results are files.
void say(std::string_view text);

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

std::string counted(int64_t count, std::string_view noun);  // "1 step", "2 steps"

}  // namespace lazytrain::train
