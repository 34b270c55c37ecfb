// Any bytes as a data file: refused with an error, or rows that become samples which hold together.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/dataset.h"
#include "text/samples.h"

namespace {

using namespace lazytrain;

text::Encoder byte_encoder() {
  return {[](std::string_view s) { return std::vector<int32_t>(s.begin(), s.end()); },
          [](int32_t id) { return id == '>'; }, 0, "bytes"};
}

void prepare(const text::Record& record, const text::ChatTemplate* chat) {
  for (text::Sample& sample : text::make_samples(record, byte_encoder(), chat, "row")) {
    if (sample.ids.size() != sample.is_target.size()) std::abort();
    if (text::truncate(sample, 64) && (sample.ids.size() > 64 || sample.is_target[0] != 0)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto chat = text::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{% endif %}",
      "fuzz", {});
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    text::RowReader first(bytes, "fuzz");
    text::RawRow row;
    if (!first.next(row)) return 0;
    const text::RowSchema schema = text::detect_schema(row, {}, "fuzz");
    int64_t line = 0;
    for (text::RowReader reader(bytes, "fuzz"); reader.next(row);) {
      if (row.text.empty() || row.line < line) std::abort();
      line = row.line;
      const text::Record record = text::parse_record(row, schema, "fuzz");
      prepare(record, &chat);
      if (record.messages.is_null()) prepare(record, nullptr);
    }
  } catch (const Error&) {
  }
  return 0;
}
