// Cuts a data file into the texts of its rows without holding more than one of them: JSON lines, or one JSON array.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace lazytrain::text {

constexpr int64_t kMaxRowBytes = int64_t{64} << 20;

struct RawRow {
  std::string_view text;  // one JSON value, not yet parsed
  int64_t line = 0;       // of its first byte, counted from 1
};

class RowReader {
 public:
  // `bytes` must outlive the reader and its rows; `path` names the file in errors. A BOM is skipped. The file is an
  // array when its first character is "[".
  RowReader(std::span<const std::byte> bytes, std::string path);

  // The next row, or false at the end. Lines may end in CR LF; lines of white space alone are skipped. Throws
  // InputError naming the line: a row of more than kMaxRowBytes, an array with something else than values and commas.
  bool next(RawRow& row);

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError("{}: line {}: {}", path_, line_, fmt::format(format, std::forward<Args>(args)...));
  }
  bool next_line(RawRow& row);
  bool next_element(RawRow& row);
  void expect_end();
  void skip_space();
  size_t element_end() const;

  std::string_view text_;
  std::string path_;
  size_t pos_ = 0;
  int64_t line_ = 1;
  bool array_ = false;
  bool first_ = true;
  bool ended_ = false;
};

}  // namespace lazytrain::text
