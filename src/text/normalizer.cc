#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

constexpr int kMaxSteps = 64;

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool compatible(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }

// Below U+0300 nothing combines and every character is its own NFC; ASCII is unchanged by every form.
bool already_normal(std::string_view text, NormalForm form) {
  if (form != NormalForm::kNfc) return is_ascii(text);
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

int combining_class(utf8proc_int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; }

// utf8proc's own reordering takes quadratic time on long runs of marks.
void reorder_marks(std::vector<utf8proc_int32_t>& points) {
  for (auto begin = points.begin(); begin != points.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void add_steps(const Json& config, const std::string& where, std::vector<NormalForm>& forms, int depth) {
  if (config.is_null()) return;
  const JsonObject object(config, where);
  const std::string type = object.string("type");
  if (type == "NFC") {
    forms.push_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    forms.push_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    forms.push_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    forms.push_back(NormalForm::kNfkd);
  } else if (type == "Sequence") {
    const Json& parts = object.has("normalizers") ? *config.find("normalizers") : Json();
    if (!parts.is_array()) throw InputError("{}: \"normalizers\" of a Sequence must be a list", where);
    for (const Json& part : parts) {
      if (depth >= kMaxSteps) throw InputError("{}: nested more than {} levels deep", where, kMaxSteps);
      if (part.is_null()) throw InputError("{}: a Sequence holds null, expected a normalizer", where);
      add_steps(part, where, forms, depth + 1);
    }
  } else {
    throw UsageError(
        "{}: the normalizer \"{}\" is not supported; supported are null, NFC, NFD, NFKC, NFKD and a Sequence of these",
        where, shown(type));
  }
  if (forms.size() > kMaxSteps) throw InputError("{}: more than {} normalizers in a row", where, kMaxSteps);
}

}  // namespace

std::string_view normalize(std::string_view text, NormalForm form, std::string& buffer) {
  if (already_normal(text, form)) return text;
  auto options = static_cast<int>(UTF8PROC_STABLE) | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compatible(form)) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    at += point.bytes;
    utf8proc_int32_t parts[32];  // the longest decomposition has 18 code points
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts, 32,
                                               static_cast<utf8proc_option_t>(options), &boundary);
    if (count < 0 || count > 32) throw RunError("normalizing U+{:04X} failed", static_cast<uint32_t>(point.value));
    points.insert(points.end(), parts, parts + count);
  }
  reorder_marks(points);
  auto length = static_cast<utf8proc_ssize_t>(points.size());
  if (composes(form)) {
    length = utf8proc_normalize_utf32(points.data(), length, static_cast<utf8proc_option_t>(options));
    if (length < 0) throw RunError("normalizing text failed: {}", utf8proc_errmsg(length));
  }
  buffer.clear();
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(buffer, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  }
  return buffer;
}

Normalizer Normalizer::from_json(const Json& config, const std::string& where) {
  Normalizer normalizer;
  add_steps(config, where + ": normalizer", normalizer.forms_, 0);
  return normalizer;
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  std::string other;
  for (const NormalForm form : forms_) {
    text = normalize(text, form, other);
    if (text.data() == other.data() && !other.empty()) {
      buffer.swap(other);
      text = buffer;
    }
  }
  return text;
}

std::string Normalizer::describe() const {
  std::string out;
  for (const NormalForm form : forms_) out += fmt::format("normal form {};", static_cast<int>(form));
  return out;
}

}  // namespace lazytrain::text
