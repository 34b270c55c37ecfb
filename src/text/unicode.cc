#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "text/utf8.h"

namespace lazytrain::text {
namespace {

struct Range {
  char32_t first, last;
  CharClass char_class;
};

// Letters, marks and numbers of Unicode 15.1 and 16.0; utf8proc 2.8 knows 15.0. Looked up only where that has nothing.
constexpr Range kNewer[] = {
    {0x897, 0x897, kMark},       {0x1C89, 0x1C8A, kLetter},   {0xA7CB, 0xA7CD, kLetter},   {0xA7DA, 0xA7DC, kLetter},
    {0x105C0, 0x105F3, kLetter}, {0x10D40, 0x10D49, kNumber}, {0x10D4A, 0x10D65, kLetter}, {0x10D69, 0x10D6D, kMark},
    {0x10D6F, 0x10D85, kLetter}, {0x10EC2, 0x10EC4, kLetter}, {0x10EFC, 0x10EFC, kMark},   {0x11380, 0x11389, kLetter},
    {0x1138B, 0x1138B, kLetter}, {0x1138E, 0x1138E, kLetter}, {0x11390, 0x113B5, kLetter}, {0x113B7, 0x113B7, kLetter},
    {0x113B8, 0x113C0, kMark},   {0x113C2, 0x113C2, kMark},   {0x113C5, 0x113C5, kMark},   {0x113C7, 0x113CA, kMark},
    {0x113CC, 0x113D0, kMark},   {0x113D1, 0x113D1, kLetter}, {0x113D2, 0x113D2, kMark},   {0x113D3, 0x113D3, kLetter},
    {0x113E1, 0x113E2, kMark},   {0x116D0, 0x116E3, kNumber}, {0x11BC0, 0x11BE0, kLetter}, {0x11BF0, 0x11BF9, kNumber},
    {0x11F5A, 0x11F5A, kMark},   {0x13460, 0x143FA, kLetter}, {0x16100, 0x1611D, kLetter}, {0x1611E, 0x1612F, kMark},
    {0x16130, 0x16139, kNumber}, {0x16D40, 0x16D6C, kLetter}, {0x16D70, 0x16D79, kNumber}, {0x18CFF, 0x18CFF, kLetter},
    {0x1CCF0, 0x1CCF9, kNumber}, {0x1E5D0, 0x1E5ED, kLetter}, {0x1E5EE, 0x1E5EF, kMark},   {0x1E5F0, 0x1E5F0, kLetter},
    {0x1E5F1, 0x1E5FA, kNumber}, {0x2EBF0, 0x2EE5D, kLetter}};

uint8_t newer_class(char32_t c) {
  const auto* range = std::lower_bound(std::begin(kNewer), std::end(kNewer), c,
                                       [](const Range& r, char32_t value) { return r.last < value; });
  return range != std::end(kNewer) && range->first <= c ? range->char_class : kOther;
}

uint8_t classify(char32_t c) {
  if (c == 0x0A || c == 0x0D) return kSpace | kNewline;
  if (is_white_space(c)) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
      return newer_class(c);
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return kOther;
  }
}

constexpr std::array<uint8_t, 128> make_ascii() {
  std::array<uint8_t, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) {
    classes[static_cast<size_t>(c)] = kLetter;
    classes[static_cast<size_t>(c - 'a' + 'A')] = kLetter;
  }
  for (char c = '0'; c <= '9'; ++c) classes[static_cast<size_t>(c)] = kNumber;
  for (const char c : {' ', '\t', '\v', '\f'}) classes[static_cast<size_t>(c)] = kSpace;
  for (const char c : {'\n', '\r'}) classes[static_cast<size_t>(c)] = kSpace | kNewline;
  return classes;
}

constexpr std::array<uint8_t, 128> kAscii = make_ascii();

}  // namespace

uint8_t char_class(char32_t c) { return c < kAscii.size() ? kAscii[c] : classify(c); }

bool is_digit_step_number(char32_t c) {
  return char_class(c) == kNumber || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

}  // namespace lazytrain::text
