// Regular expressions on well-formed UTF-8: PCRE2 with its JIT, bounded in steps and memory, safe to share by threads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// PCRE2's 8-bit types; its header stays out of ours.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace lazytrain::text {

class Regex {
 public:
  // What one thread needs for matching; works with every Regex.
  class Workspace {
   public:
    Workspace();

   private:
    friend class Regex;
    std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)> data_;
    std::unique_ptr<pcre2_real_match_context_8, void (*)(pcre2_real_match_context_8*)> context_;
  };

  // A pattern in Oniguruma's syntax, see onig_pattern.h. UsageError when it cannot be had.
  static Regex compile(std::string_view pattern, const std::string& where);
  // The text itself.
  static Regex literal(std::string_view text, const std::string& where);

  // The leftmost match that begins at or behind `from`, as begin and end. InputError when the pattern takes too many
  // steps or too much memory on this text.
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from, Workspace& workspace) const;

 private:
  Regex(std::string_view pattern, std::string_view source, unsigned options, const std::string& where);
  std::shared_ptr<const pcre2_real_code_8> code_;
  std::string name_;  // for messages
};

}  // namespace lazytrain::text
