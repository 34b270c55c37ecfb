// Data files: rows of a prompt and a response, or of messages, by the keys that public data sets use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/row_reader.h"

namespace lazytrain::text {

// data.prompt and data.response: the keys of a row that hold them. Both empty: the keys are recognised.
struct FieldMapping {
  std::string prompt;
  std::string response;
};

// How rows name their parts; recognised on the first row in this order, and all rows must agree.
enum class RowKind : uint8_t {
  kMapped,         // the keys of FieldMapping
  kPair,           // prompt and completion, prompt and response, query and response, question and answer
  kInstruction,    // instruction, output and, where there is one, input: prompt = instruction [LF input]
  kMessages,       // messages: a list of {role, content}
  kConversations,  // conversations: a list of {from, value}; a role is system, user, assistant, tool, human or gpt
};

struct RowSchema {
  RowKind kind;
  std::string prompt;    // its key
  std::string response;  // its key
};

struct Record {
  std::string prompt;
  std::string response;
  Json messages;     // a list of messages instead of prompt and response, else null
  int64_t line = 0;  // in the file
};

// Reads one row's text; `path` names the file in errors. InputError: no JSON object, a key missing or of another type.
Record parse_record(const RawRow& row, const RowSchema& schema, const std::string& path);

// The schema of the first row. UsageError when only one key of the mapping is set, InputError naming the keys found and
// those expected when none is recognised.
RowSchema detect_schema(const RawRow& row, const FieldMapping& mapping, const std::string& path);

// A data file row by row; memory for one row at a time.
class Dataset {
 public:
  // Throws InputError when the file cannot be read or has no rows.
  Dataset(const std::filesystem::path& path, const FieldMapping& mapping);

  bool next_raw(RawRow& row) { return reader_.next(row); }  // rows live as long as the data set
  bool next(Record& record);
  Record parse(const RawRow& row) const { return parse_record(row, schema_, path_); }

  const RowSchema& schema() const { return schema_; }
  const std::string& path() const { return path_; }
  std::string content_hash() const;  // of the file's bytes

 private:
  std::string path_;
  MappedFile file_;
  RowReader reader_;
  RowSchema schema_;
};

}  // namespace lazytrain::text
