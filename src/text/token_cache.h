// Tokenised data kept on disk, so that the next run with the same data need not tokenise again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "text/samples.h"

namespace lazytrain::text {

// Names all that determines the samples: data, rows' keys, tokenizer, template and its tokens, seq, this format.
std::string cache_key(const Dataset& data, const Encoder& encoder, const ChatTemplate* chat, int64_t seq);

// The file of a key in `folder`, whole or not there (RunError when it cannot be written).
void save_tokens(const std::filesystem::path& folder, const std::string& key, const PreparedData& data);

// Nothing when the file is missing; also, with a warning in the log, when it is damaged or of another key.
std::optional<PreparedData> load_tokens(const std::filesystem::path& folder, const std::string& key);

struct DataOptions {
  std::filesystem::path file;
  FieldMapping fields;
  int64_t seq = 0;
  std::filesystem::path cache_folder;  // made when it is missing; empty: nothing is kept
};

// The samples of a file, from the cache when it has them. A cache that cannot be written is a warning.
PreparedData prepare_data(const DataOptions& options, const Encoder& encoder, const ChatTemplate* chat,
                          ThreadPool& pool);

}  // namespace lazytrain::text
