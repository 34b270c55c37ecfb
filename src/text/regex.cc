#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <new>

#include "base/error.h"
#include "base/json.h"
#include "text/onig_pattern.h"

namespace lazytrain::text {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr size_t kMaxPattern = 64 << 10;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

Regex::Workspace::Workspace()
    : data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      context_(pcre2_match_context_create(nullptr), pcre2_match_context_free) {
  if (!data_ || !context_) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
}

Regex::Regex(std::string_view pattern, std::string_view source, unsigned options, const std::string& where)
    : name_(fmt::format("{}: the pattern \"{}\"", where, shown(source, 200))) {
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kMaxPattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options | PCRE2_UTF,
                                   &error, &offset, context.get());
  if (code == nullptr) throw UsageError("{} cannot be compiled: {}", name_, error_text(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without the JIT it is slower, not wrong
  code_ =
      std::shared_ptr<const pcre2_code>(code, [](const pcre2_code* c) { pcre2_code_free(const_cast<pcre2_code*>(c)); });
}

Regex Regex::compile(std::string_view pattern, const std::string& where) {
  return {to_pcre2(pattern, where), pattern, PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, where};
}

Regex Regex::literal(std::string_view text, const std::string& where) { return {text, text, PCRE2_LITERAL, where}; }

std::optional<std::pair<size_t, size_t>> Regex::find(std::string_view text, size_t from, Workspace& workspace) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_.get(), subject, text.size(), from, options | PCRE2_NO_UTF_CHECK, workspace.data_.get(),
                       workspace.context_.get());
  };
  int result = run(0);
  // The JIT has 32 KiB of stack; the interpreter keeps its state on the heap.
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw InputError("{} fails at byte {} of a text of {} bytes: {}", name_, from, text.size(), error_text(result));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(workspace.data_.get());
  if (ends[0] > ends[1]) throw InputError("{} matches backwards, which splits no text", name_);
  return std::pair<size_t, size_t>(ends[0], ends[1]);
}

}  // namespace lazytrain::text
