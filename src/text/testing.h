// What several tests of this room share.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/encoder.h"

namespace lazytrain::text::test {

// A folder of its own that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lazytrain_text_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw RunError("no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const { write_file(path_ / name, text); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A tokenizer whose ids can be told by hand: control tokens, and the rest of a text in pairs of bytes from the left.
constexpr int32_t kEos = 1;
constexpr int32_t kStart = 2;
constexpr int32_t kEnd = 3;

inline const std::map<std::string, int32_t>& control_tokens() {
  static const std::map<std::string, int32_t> tokens = {{"</s>", kEos}, {"<|im_start|>", kStart}, {"<|im_end|>", kEnd}};
  return tokens;
}

inline int32_t id_of(std::string_view pair) {
  const auto first = static_cast<unsigned char>(pair[0]);
  return 1000 + first * 257 + (pair.size() > 1 ? static_cast<unsigned char>(pair[1]) + 1 : 0);
}

inline std::string pair_text(int32_t id) {
  for (const auto& [name, control] : control_tokens()) {
    if (control == id) return name;
  }
  std::string text(1, static_cast<char>((id - 1000) / 257));
  if ((id - 1000) % 257 != 0) text += static_cast<char>((id - 1000) % 257 - 1);
  return text;
}

inline std::vector<int32_t> pair_encode(std::string_view text) {
  std::vector<int32_t> ids;
  const auto control_at = [&](size_t at) {
    for (const auto& entry : control_tokens()) {
      if (text.substr(at, entry.first.size()) == entry.first) return &entry;
    }
    return static_cast<const std::pair<const std::string, int32_t>*>(nullptr);
  };
  for (size_t at = 0; at < text.size();) {
    if (const auto* control = control_at(at)) {
      ids.push_back(control->second);
      at += control->first.size();
      continue;
    }
    const size_t bytes = at + 1 < text.size() && control_at(at + 1) == nullptr ? 2 : 1;
    ids.push_back(id_of(text.substr(at, bytes)));
    at += bytes;
  }
  return ids;
}

inline Encoder pair_encoder() {
  return {pair_encode, [](int32_t id) { return id == kEos || id == kStart || id == kEnd; }, kEos, "pairs"};
}

}  // namespace lazytrain::text::test
