#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace lazytrain::cli {

void write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) throw ReaderGone{};
      throw RunError("standard output: {}", std::strerror(errno));
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

bool shows_colour() {
  const char* off = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (off == nullptr || *off == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

void print(bool json, const Json& object, std::string_view text) {
  // Text of a file may hold malformed UTF-8; JSON may not.
  std::string out = json ? object.dump(-1, ' ', false, Json::error_handler_t::replace) : std::string(text);
  if (out.empty() || out.back() != '\n') out += '\n';
  write_stdout(out);
}

void Table::add(std::string_view name, std::string_view value) { rows_.emplace_back(name, value); }

std::string Table::text() const {
  size_t width = 0;
  for (const auto& [name, value] : rows_) width = std::max(width, name.size());
  std::string out;
  for (const auto& [name, value] : rows_) out += fmt::format("{:<{}}  {}\n", name, width, value);
  return out;
}

}  // namespace lazytrain::cli
