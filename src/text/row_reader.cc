#include "text/row_reader.h"

#include <algorithm>

#include "base/error.h"

namespace lazytrain::text {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

RowReader::RowReader(std::span<const std::byte> bytes, std::string path)
    : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path_(std::move(path)) {
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  const auto first = std::find_if_not(text_.begin(), text_.end(), is_space);
  array_ = first != text_.end() && *first == '[';
  if (array_) {
    skip_space();
    ++pos_;
  }
}

bool RowReader::next(RawRow& row) { return array_ ? next_element(row) : next_line(row); }

bool RowReader::next_line(RawRow& row) {
  while (pos_ < text_.size()) {
    const size_t newline = std::min(text_.find('\n', pos_), text_.size());
    std::string_view line = text_.substr(pos_, newline - pos_);
    const int64_t number = line_++;
    pos_ = newline + 1;
    while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
    if (line.empty()) continue;
    if (line.size() > static_cast<size_t>(kMaxRowBytes)) {
      line_ = number;
      fail("a line of {} bytes, more than the {} a row may have", line.size(), kMaxRowBytes);
    }
    row = {line, number};
    return true;
  }
  return false;
}

void RowReader::skip_space() {
  for (; pos_ < text_.size() && is_space(text_[pos_]); ++pos_) line_ += text_[pos_] == '\n';
}

bool RowReader::next_element(RawRow& row) {
  if (ended_) return false;
  skip_space();
  if (first_ && pos_ < text_.size() && text_[pos_] == ']') {
    expect_end();
    return false;
  }
  if (pos_ == text_.size()) fail("the array is not closed, expected ] (is the file complete?)");
  const size_t end = element_end();
  row = {text_.substr(pos_, end - pos_), line_};
  line_ += std::count(row.text.begin(), row.text.end(), '\n');
  pos_ = end;
  first_ = false;
  skip_space();
  if (pos_ == text_.size()) fail("the array is not closed, expected ] (is the file complete?)");
  if (text_[pos_] == ']') {
    expect_end();
  } else if (text_[pos_++] != ',') {
    fail("expected , or ] behind a row of the array, found '{}'", text_[pos_ - 1]);
  }
  return true;
}

// At the bracket that closes the array: only white space may follow.
void RowReader::expect_end() {
  ended_ = true;
  ++pos_;
  skip_space();
  if (pos_ != text_.size()) fail("text behind the end of the array");
}

// The end of the value at pos_: where a comma or bracket stands outside of strings and inner brackets.
size_t RowReader::element_end() const {
  int64_t depth = 0;
  bool in_string = false;
  size_t at = pos_;
  for (; at < text_.size(); ++at) {
    if (at - pos_ > static_cast<size_t>(kMaxRowBytes)) fail("a row of more than {} bytes", kMaxRowBytes);
    const char c = text_[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']')) {
      break;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return at + 1;
      if (depth < 0) fail("unexpected '{}'", c);
    }
  }
  at = std::min(at, text_.size());
  if (at == pos_) fail("expected a row of the array, found '{}'", at < text_.size() ? text_[at] : ' ');
  return at;
}

}  // namespace lazytrain::text
