#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"

namespace lazytrain::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file's bytes with the header as given, no padding.
std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

// {"t": {dtype, shape, data_offsets}} from JSON texts.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

std::string refusal(const std::string& bytes) {
  try {
    const SafetensorsFile file(std::as_bytes(std::span(bytes)), "x.safetensors");
    return "accepted";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Safetensors, ReadsTensorsInDataOrder) {
  const std::string bytes =
      file_of(R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},"__metadata__":{"format":"pt","k":"v"},)"
              R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})",
              "0123456789");
  const SafetensorsFile file(std::as_bytes(std::span(bytes)), "x");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].count, 1);
  EXPECT_THAT(file.tensors()[0].shape, IsEmpty());
  const TensorEntry* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_THAT(b->shape, ElementsAre(1, 2));
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_EQ(b->bytes, 8);
  EXPECT_EQ(std::memcmp(b->data, "23456789", 8), 0);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair("format", "pt"), std::pair("k", "v")));
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(refusal(file_of("{}")), "accepted");
  EXPECT_EQ(refusal(file_of("{}     ")), "accepted");
  EXPECT_EQ(refusal(file_of(one(R"("F32")", "[]", "[0,4]"), "1234")), "accepted");
  EXPECT_EQ(refusal(file_of(one(R"("F32")", "[3,0,7]", "[0,0]"))), "accepted");
  EXPECT_EQ(refusal(file_of(one(R"("F4")", "[4]", "[0,2]"), "12")), "accepted");
  EXPECT_EQ(refusal(file_of(R"({"é 模型":{"data_offsets":[0,1],"shape":[1],"dtype":"BOOL"}})", "1")), "accepted");
  // Zero-size tensors share an offset with their neighbours, in whatever order the header has them.
  EXPECT_EQ(refusal(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                            R"("z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                            R"("y":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                            "12")),
            "accepted");
}

TEST(Safetensors, KeepsTypesItCannotHold) {
  for (const char* name : {"BOOL", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    const std::string bytes = file_of(one("\"" + std::string(name) + "\"", "[2]", "[0,2]"), "12");
    const SafetensorsFile file(std::as_bytes(std::span(bytes)), "x");
    EXPECT_FALSE(file.find("t")->dtype.has_value());
    EXPECT_THROW((void)file.find("t")->required_dtype(), InputError) << name;
  }
  const std::string bytes = file_of(one(R"("I64")", "[1]", "[0,8]"), "12345678");
  const SafetensorsFile file(std::as_bytes(std::span(bytes)), "x");
  EXPECT_EQ(file.find("t")->required_dtype(), DType::kI64);
}

TEST(Safetensors, RefusesBrokenLengths) {
  EXPECT_THAT(refusal(""), HasSubstr("found 0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("found 7 bytes"));
  std::string bytes = file_of("{}");
  bytes[0] = 3;  // one byte more than there is
  EXPECT_THAT(refusal(bytes), HasSubstr("cut off"));
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_THAT(refusal(bytes), HasSubstr("header length"));
  }
  EXPECT_THAT(refusal(std::string(8, '\0')), HasSubstr("expected '{'"));
}

TEST(Safetensors, RefusesBrokenHeaders) {
  const auto header = [](const std::string& text) { return refusal(file_of(text)); };
  EXPECT_THAT(header(" {}"), HasSubstr("expected '{'"));
  EXPECT_THAT(header("\xef\xbb\xbf{}"), HasSubstr("expected '{'"));
  EXPECT_THAT(header("[]"), HasSubstr("expected '{'"));
  EXPECT_THAT(header("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header("{}{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header(std::string("{}\0", 3)), HasSubstr("not valid JSON"));
  EXPECT_THAT(header(std::string("{}\0{\"hidden\":1}", 15)), HasSubstr("NUL"));
  EXPECT_THAT(header("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header("{\"a\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header("{\"a\":1}"), AllOf(HasSubstr("tensor \"a\""), HasSubstr("found 1")));
  EXPECT_THAT(header("{\"a\":null}"), HasSubstr("found null"));
  EXPECT_THAT(header("{\"a\":[]}"), HasSubstr("found a list"));
  EXPECT_THAT(header("{\"a\":{}}"), HasSubstr("dtype is missing"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[0]}})"), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})"), HasSubstr("shape is missing"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("dtype stands twice"));
  EXPECT_THAT(header(R"({"a":{"shape":[],"shape":[]}})"), HasSubstr("shape stands twice"));
  EXPECT_THAT(header(R"({"a":{"data_offsets":[0,0],"data_offsets":[0,0]}})"), HasSubstr("data_offsets stands twice"));
  EXPECT_THAT(header(R"({"a":{"more":1}})"), HasSubstr("found the key \"more\""));
  EXPECT_THAT(header(one("\"F31\"", "[0]", "[0,0]")), HasSubstr("found dtype \"F31\""));
  EXPECT_THAT(header(one("7", "[0]", "[0,0]")), HasSubstr("found 7"));
}

TEST(Safetensors, RefusesDeepJsonWithoutRecursion) {
  EXPECT_NE(refusal(file_of("{\"a\":" + std::string(5'000'000, '['))), "accepted");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_NE(refusal(file_of(objects)), "accepted");
}

TEST(Safetensors, RefusesDuplicateNames) {
  const std::string tensor = R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refusal(file_of("{" + tensor + "," + tensor + "}")), HasSubstr("tensor \"t\" stands twice"));
  // The same name in another spelling.
  EXPECT_THAT(refusal(file_of("{" + tensor + R"(,"\u0074":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})")),
              HasSubstr("stands twice"));
}

TEST(Safetensors, RefusesBrokenMetadata) {
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":1}})")), HasSubstr("__metadata__ \"a\": found 1"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":{"b":"c"}}})")), HasSubstr("found an object"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":null}})")), HasSubstr("found null"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":["a"]})")), HasSubstr("found a list"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":"a"})")), HasSubstr("found \"a\""));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":"1","a":"1"}})")), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})")), HasSubstr("stands twice"));
}

TEST(Safetensors, RefusesBrokenNames) {
  const auto named = [](const std::string& name) {
    return refusal(file_of("{\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"));
  };
  EXPECT_THAT(named("a\\u0000b"), AllOf(HasSubstr("control character at byte 1"), HasSubstr("\\x00")));
  EXPECT_THAT(named("\\u001b[2J"), HasSubstr("control character"));
  EXPECT_THAT(named("a\\n"), HasSubstr("control character"));
  EXPECT_THAT(named("\x7f"), HasSubstr("control character"));
  EXPECT_THAT(named("\\u0085"), HasSubstr("control character"));
  EXPECT_EQ(named("\u00a0"), "accepted");
  EXPECT_THAT(named(""), HasSubstr("0 bytes"));
  EXPECT_EQ(named(std::string(1024, 'a')), "accepted");
  EXPECT_THAT(named(std::string(1025, 'a')), HasSubstr("1025 bytes"));
}

TEST(Safetensors, RefusesBrokenNumbers) {
  const auto shape = [](const std::string& text) { return refusal(file_of(one("\"F32\"", text, "[0,4]"), "1234")); };
  EXPECT_THAT(shape("[-1]"), HasSubstr("found -1"));
  EXPECT_THAT(shape("[-0]"), HasSubstr("found -0"));
  EXPECT_THAT(shape("[1.0]"), HasSubstr("found 1.0"));
  EXPECT_THAT(shape("[1e0]"), HasSubstr("found 1e0"));
  EXPECT_THAT(shape("[1e999]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(shape("[\"1\"]"), HasSubstr("found \"1\""));
  EXPECT_THAT(shape("[true]"), HasSubstr("found true"));
  EXPECT_THAT(shape("[[1]]"), HasSubstr("found a list"));
  EXPECT_THAT(shape("1"), HasSubstr("found 1"));
  EXPECT_THAT(shape("[9223372036854775808]"), HasSubstr("found 9223372036854775808"));
  EXPECT_THAT(shape("[18446744073709551616]"), HasSubstr("found 18446744073709551616"));
  EXPECT_THAT(shape("[18446744073709551614,18446744073709551614]"), HasSubstr("found 18446744073709551614"));
  EXPECT_THAT(shape("[4611686018427387904,4]"), HasSubstr("more elements"));  // 2^64 elements: 0 when it wraps
  EXPECT_THAT(shape("[4294967296,2147483648]"), HasSubstr("more elements"));
  EXPECT_THAT(shape("[2305843009213693952]"), HasSubstr("more elements"));  // 2^61 elements, 2^66 bits
  std::string ones = "[1";
  for (int64_t i = 1; i < kMaxRank; ++i) ones += ",1";
  EXPECT_EQ(shape(ones + "]"), "accepted");
  EXPECT_THAT(shape(ones + ",1]"), HasSubstr("dimensions"));
  EXPECT_THAT(refusal(file_of(one("\"F4\"", "[3]", "[0,1]"), "1")), HasSubstr("whole number of bytes"));
}

TEST(Safetensors, RefusesBrokenOffsets) {
  const auto offsets = [](const std::string& text) { return refusal(file_of(one("\"F32\"", "[1]", text), "1234")); };
  EXPECT_EQ(offsets("[0,4]"), "accepted");
  EXPECT_THAT(offsets("[0.0,4]"), HasSubstr("found 0.0"));
  EXPECT_THAT(offsets("[0,4.0]"), HasSubstr("found 4.0"));
  EXPECT_THAT(offsets("[-4,0]"), HasSubstr("found -4"));
  EXPECT_THAT(offsets("[4]"), HasSubstr("found 1 data_offsets"));
  EXPECT_THAT(offsets("[]"), HasSubstr("found 0 data_offsets"));
  EXPECT_THAT(offsets("[0,4,4]"), HasSubstr("more than two"));
  EXPECT_THAT(offsets("[4,0]"),
              AllOf(HasSubstr("found data_offsets [4, 0]"), HasSubstr("expected 4 bytes for F32 [1]")));
  EXPECT_THAT(offsets("[0,3]"), HasSubstr("expected 4 bytes"));
  EXPECT_THAT(offsets("[0,8]"), HasSubstr("expected 4 bytes"));
  EXPECT_THAT(offsets("[9223372036854775803,9223372036854775807]"), HasSubstr("within the file's 4 data bytes"));
  EXPECT_THAT(offsets("[9223372036854775808,18446744073709551615]"), HasSubstr("found 9223372036854775808"));
}

TEST(Safetensors, RefusesHolesOverlapsAndStrayBytes) {
  const auto two = [](const std::string& first, const std::string& second, size_t bytes) {
    return refusal(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                               R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                           std::string(bytes, 'x')));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "accepted");
  EXPECT_THAT(two("[0,4]", "[5,9]", 9), AllOf(HasSubstr("tensor \"b\""), HasSubstr("hole"), HasSubstr("begin of 4")));
  EXPECT_THAT(two("[1,5]", "[5,9]", 9), AllOf(HasSubstr("tensor \"a\""), HasSubstr("hole")));
  EXPECT_THAT(two("[0,4]", "[3,7]", 7), AllOf(HasSubstr("tensor \"b\""), HasSubstr("overlaps")));
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 9), HasSubstr("found 1 bytes after"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 7), AllOf(HasSubstr("tensor \"b\""), HasSubstr("7 data bytes")));
  EXPECT_THAT(refusal(file_of("{}", "x")), HasSubstr("found 1 bytes after"));
}

TEST(Safetensors, BoundsTheNumberOfTensors) {
  std::string header = "{";
  for (int64_t i = 0; i <= kMaxTensors; ++i) {
    if (i > 0) header += ',';
    header.append("\"").append(std::to_string(i)) += R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  EXPECT_THAT(refusal(file_of(header + "}")), HasSubstr("more than 262144 tensors"));
}

TEST(Safetensors, ABrokenFileIsSaidWithWhatToDo) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "short.safetensors";
  std::ofstream(path) << "short";
  std::string message;
  try {
    const SafetensorsFile file(path);
  } catch (const InputError& error) {
    message = error.what();
  }
  std::filesystem::remove(path);
  EXPECT_THAT(message, AllOf(HasSubstr("found 5 bytes"), HasSubstr("get it again")));
}

TEST(Safetensors, NoticesAFileThatShrank) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "shrinks.safetensors";
  std::ofstream(path, std::ios::binary) << file_of(one("\"F32\"", "[1]", "[0,4]"), "1234");
  const SafetensorsFile file(path);
  EXPECT_NO_THROW(file.check_unchanged());
  std::filesystem::resize_file(path, 9);
  EXPECT_THROW(file.check_unchanged(), InputError);
  std::filesystem::remove(path);
  EXPECT_THROW(file.check_unchanged(), InputError);
}

}  // namespace
}  // namespace lazytrain::model
