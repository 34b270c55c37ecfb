#include "model/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/safetensors.h"

namespace lazytrain::model {
namespace {

constexpr int64_t kMaxMetadataEntries = 100'000;

constexpr std::array<FormatType, 22> kFormatTypes = {
    {{"BOOL", 8}, {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
     {"F4", 4},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
     {"U16", 16}, {"F16", 16},        {"BF16", 16},       {"I32", 32},    {"U32", 32},    {"F32", 32},
     {"I64", 64}, {"U64", 64},        {"F64", 64},        {"C64", 64}}};

// The format's grammar over the JSON parser's events; anything else is refused at the event that brings it.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::string_view where) : where_(where) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool v) override { unexpected(v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override { unexpected(v == 0 ? "-0" : std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override;
  bool number_float(number_float_t, const string_t& text) override { unexpected(text); }
  bool string(string_t& text) override;
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool start_object(size_t) override;
  bool key(string_t& text) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override;

 private:
  // What the next event must be.
  enum class Place {
    kHeader,         // the header's object
    kName,           // a tensor's name or __metadata__, or the header's end
    kMetadata,       // the metadata's object
    kMetadataKey,    // a key, or the metadata's end
    kMetadataValue,  // a string
    kTensor,         // the tensor's object
    kField,          // dtype, shape, data_offsets, or the tensor's end
    kType,           // a string
    kShape,          // the list of dimensions
    kDimension,      // a dimension, or the list's end
    kOffsets,        // the list of offsets
    kOffset,         // an offset, or the list's end
  };

  DeclaredTensor& tensor() { return header_.tensors.back(); }
  std::string subject() const;
  std::string_view expected() const;
  [[noreturn]] void unexpected(std::string_view found) const {
    throw InputError("{}: {}: found {}, expected {}", where_, subject(), shown(found), expected());
  }
  void name_key(std::string& text);
  void field_key(std::string_view text);

  std::string_view where_;
  SafetensorsHeader header_;
  Place place_ = Place::kHeader;
  bool metadata_seen_ = false;
  std::string metadata_key_;
  bool shape_seen_ = false;
  bool offsets_seen_ = false;
  int offset_count_ = 0;
};

std::string HeaderReader::subject() const {
  switch (place_) {
    case Place::kHeader:
    case Place::kName:
      return "header";
    case Place::kMetadata:
    case Place::kMetadataKey:
      return "__metadata__";
    case Place::kMetadataValue:
      return fmt::format("__metadata__ \"{}\"", shown(metadata_key_));
    default:
      return fmt::format("tensor \"{}\"", shown(header_.tensors.back().name, kMaxNameBytes));
  }
}

std::string_view HeaderReader::expected() const {
  switch (place_) {
    case Place::kHeader:
      return "an object";
    case Place::kName:
      return "a tensor name";
    case Place::kMetadata:
      return "an object from string to string";
    case Place::kMetadataKey:
      return "a key";
    case Place::kMetadataValue:
      return "a string";
    case Place::kTensor:
      return "an object with dtype, shape and data_offsets";
    case Place::kField:
      return "dtype, shape or data_offsets";
    case Place::kType:
      return "a string as dtype";
    case Place::kShape:
      return "a list of dimensions as shape";
    case Place::kDimension:
      return "a whole number from 0 to 2^63 - 1 as dimension";
    case Place::kOffsets:
      return "a list of two numbers as data_offsets";
    case Place::kOffset:
      return "a whole number from 0 to 2^63 - 1 in data_offsets";
  }
  return "";
}

bool HeaderReader::number_unsigned(number_unsigned_t v) {
  const bool wanted = place_ == Place::kDimension || place_ == Place::kOffset;
  if (!wanted || v > static_cast<uint64_t>(INT64_MAX)) unexpected(std::to_string(v));
  const auto value = static_cast<int64_t>(v);
  if (place_ == Place::kDimension) {
    if (std::ssize(tensor().shape) == kMaxRank) {
      throw InputError("{}: {}: found more than {} dimensions", where_, subject(), kMaxRank);
    }
    tensor().shape.push_back(value);
    return true;
  }
  if (offset_count_ == 2) throw InputError("{}: {}: found more than two data_offsets", where_, subject());
  (offset_count_++ == 0 ? tensor().begin : tensor().end) = value;
  return true;
}

bool HeaderReader::string(string_t& text) {
  if (place_ == Place::kMetadataValue) {
    header_.metadata.insert_or_assign(std::move(metadata_key_), std::move(text));
    place_ = Place::kMetadataKey;
    return true;
  }
  if (place_ != Place::kType) unexpected(fmt::format("\"{}\"", shown(text)));
  const auto type = std::find_if(kFormatTypes.begin(), kFormatTypes.end(), [&](auto& t) { return t.name == text; });
  if (type == kFormatTypes.end()) {
    throw InputError("{}: {}: found dtype \"{}\", expected one of the format's (BF16, F16, F32, I64, ...)", where_,
                     subject(), shown(text));
  }
  tensor().type = &*type;
  place_ = Place::kField;
  return true;
}

bool HeaderReader::start_object(size_t) {
  switch (place_) {
    case Place::kHeader:
      place_ = Place::kName;
      return true;
    case Place::kMetadata:
      place_ = Place::kMetadataKey;
      return true;
    case Place::kTensor:
      place_ = Place::kField;
      return true;
    default:
      unexpected("an object");
  }
}

bool HeaderReader::key(string_t& text) {
  if (place_ == Place::kName) {
    name_key(text);
  } else if (place_ == Place::kMetadataKey) {
    if (header_.metadata.contains(text)) {
      throw InputError("{}: __metadata__: the key \"{}\" stands twice", where_, shown(text));
    }
    if (std::ssize(header_.metadata) == kMaxMetadataEntries) {
      throw InputError("{}: __metadata__: found more than {} entries", where_, kMaxMetadataEntries);
    }
    metadata_key_ = std::move(text);
    place_ = Place::kMetadataValue;
  } else {
    field_key(text);
  }
  return true;
}

void HeaderReader::name_key(std::string& text) {
  if (text == "__metadata__") {
    if (metadata_seen_) throw InputError("{}: header: __metadata__ stands twice", where_);
    metadata_seen_ = true;
    place_ = Place::kMetadata;
    return;
  }
  check_tensor_name(text, where_);
  if (std::ssize(header_.tensors) == kMaxTensors) {
    throw InputError("{}: header: found more than {} tensors", where_, kMaxTensors);
  }
  header_.tensors.emplace_back().name = std::move(text);
  shape_seen_ = offsets_seen_ = false;
  place_ = Place::kTensor;
}

void HeaderReader::field_key(std::string_view text) {
  const auto once = [&](bool seen) {
    if (seen) throw InputError("{}: {}: {} stands twice", where_, subject(), text);
  };
  if (text == "dtype") {
    once(tensor().type != nullptr);
    place_ = Place::kType;
  } else if (text == "shape") {
    once(std::exchange(shape_seen_, true));
    place_ = Place::kShape;
  } else if (text == "data_offsets") {
    once(std::exchange(offsets_seen_, true));
    offset_count_ = 0;
    place_ = Place::kOffsets;
  } else {
    unexpected(fmt::format("the key \"{}\"", shown(text)));
  }
}

bool HeaderReader::end_object() {
  if (place_ == Place::kField) {
    const char* missing = tensor().type == nullptr ? "dtype" : !shape_seen_ ? "shape" : "data_offsets";
    if (tensor().type == nullptr || !shape_seen_ || !offsets_seen_) {
      throw InputError("{}: {}: {} is missing, expected dtype, shape and data_offsets", where_, subject(), missing);
    }
  }
  place_ = Place::kName;  // after the header's own end the parser lets nothing but spaces follow
  return true;
}

bool HeaderReader::start_array(size_t) {
  switch (place_) {
    case Place::kShape:
      place_ = Place::kDimension;
      return true;
    case Place::kOffsets:
      place_ = Place::kOffset;
      return true;
    default:
      unexpected("a list");
  }
}

bool HeaderReader::end_array() {
  if (place_ == Place::kOffset && offset_count_ != 2) {
    throw InputError("{}: {}: found {} data_offsets, expected [begin, end]", where_, subject(), offset_count_);
  }
  place_ = Place::kField;
  return true;
}

bool HeaderReader::parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
  std::string_view reason = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  if (const auto colon = reason.find(": "); colon != std::string_view::npos) reason.remove_prefix(colon + 2);
  throw InputError("{}: header, byte {}: not valid JSON: {}", where_, position, shown(reason, 200));
}

void check_distinct(const std::vector<DeclaredTensor>& tensors, std::string_view where) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw InputError("{}: tensor \"{}\" stands twice in the header, expected each name once", where, *twice);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::string_view where) {
  // The JSON parser itself would let a byte order mark or white space pass.
  if (text.empty() || text.front() != '{') {
    throw InputError("{}: header: found \"{}\" first, expected '{{'", where, shown(text.substr(0, 1)));
  }
  // The JSON parser takes a NUL for the end of the text, and would not look at what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw InputError("{}: header, byte {}: not valid JSON: a NUL byte", where, nul);
  }
  HeaderReader reader(where);
  Json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  check_distinct(header.tensors, where);
  return header;
}

}  // namespace lazytrain::model
