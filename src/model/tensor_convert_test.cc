#include "model/tensor_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/rng.h"

namespace lazytrain::model {
namespace {

using ::testing::HasSubstr;

// A one-tensor file in memory whose data starts at an odd address.
class OneTensor {
 public:
  template <typename T>
  OneTensor(const std::string& dtype, const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    std::string header = R"({"t":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(values.size()) +
                         R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    const uint64_t length = header.size() | 1;  // odd
    header.resize(length, ' ');
    text_.resize(8 + length + bytes);
    std::memcpy(text_.data(), &length, 8);
    std::memcpy(text_.data() + 8, header.data(), length);
    std::memcpy(text_.data() + 8 + length, values.data(), bytes);
    file_ = std::make_unique<SafetensorsFile>(std::as_bytes(std::span(text_)), "x.safetensors");
  }
  const TensorEntry& entry() const { return *file_->find("t"); }

 private:
  std::vector<char> text_;
  std::unique_ptr<SafetensorsFile> file_;
};

uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }

TEST(TensorConvert, FloatsBecomeExactMasters) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               1.00390625f,
                               -1.5e-45f,
                               std::numeric_limits<float>::max(),
                               -std::numeric_limits<float>::infinity()};
  const CounterRng rng(1, 2);
  for (uint64_t i = 0; i < 100'000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(rng.bits(i)));
    values.push_back(std::isnan(v) ? 1.0f : v);
  }
  const OneTensor tensor("F32", values);
  ThreadPool pool(2);
  std::vector<bf16> hi(values.size());
  std::vector<int16_t> lo(values.size());
  read_as_master(tensor.entry(), hi, lo, 0, &pool);
  std::vector<float> floats(values.size());
  read_as_f32(tensor.entry(), floats, 0, &pool);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(bits(merge_master({hi[i], lo[i]})), bits(values[i])) << i;
    ASSERT_EQ(bits(floats[i]), bits(values[i])) << i;
  }
}

TEST(TensorConvert, Bf16KeepsItsBitsWithNoRemainder) {
  std::vector<uint16_t> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  const OneTensor tensor("BF16", values);
  std::vector<bf16> hi(values.size());
  std::vector<int16_t> lo(values.size(), 7);
  read_as_master(tensor.entry(), hi, lo);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(hi[i].bits, values[i]);
    ASSERT_EQ(lo[i], 0);
  }
}

TEST(TensorConvert, HalvesAreExact) {
  std::vector<uint16_t> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  const OneTensor tensor("F16", values);
  std::vector<bf16> hi(values.size());
  std::vector<int16_t> lo(values.size());
  read_as_master(tensor.entry(), hi, lo);
  for (size_t i = 0; i < values.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10) & 31;
    const double mantissa = static_cast<double>(i & 1023);
    const double magnitude =
        exponent == 0 ? mantissa * std::pow(2.0, -24) : (1 + mantissa / 1024) * std::pow(2.0, exponent - 15);
    const double expected = i & 0x8000 ? -magnitude : magnitude;
    const float found = merge_master({hi[i], lo[i]});
    if (exponent == 31) {
      ASSERT_EQ(std::isinf(found), mantissa == 0) << i;
      ASSERT_EQ(std::isnan(found), mantissa != 0) << i;
      ASSERT_EQ(std::isnan(to_float(hi[i])), mantissa != 0) << i;  // what the device sees
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << i;
    }
    if (exponent != 31 || mantissa == 0) {
      ASSERT_EQ(std::signbit(found), (i & 0x8000) != 0) << i;
    }
  }
}

TEST(TensorConvert, ReadsRanges) {
  const OneTensor tensor("F32", std::vector<float>{0, 1, 2, 3, 4});
  std::vector<float> two(2);
  read_as_f32(tensor.entry(), two, 3);
  EXPECT_EQ(two[0], 3);
  EXPECT_EQ(two[1], 4);
  std::vector<bf16> hi(3);
  read_as_master(tensor.entry(), hi, {}, 1);
  EXPECT_EQ(to_float(hi[2]), 3);
  EXPECT_THROW(read_as_f32(tensor.entry(), two, 4), RunError);
  EXPECT_THROW(read_as_f32(tensor.entry(), two, -1), RunError);
  EXPECT_THROW(read_as_f32(tensor.entry(), two, INT64_MAX), RunError);
  std::vector<int16_t> short_lo(1);
  EXPECT_THROW(read_as_master(tensor.entry(), hi, short_lo), RunError);
}

TEST(TensorConvert, RefusesOtherTypesByName) {
  const OneTensor integers("I64", std::vector<int64_t>{1, 2});
  std::vector<float> out(2);
  try {
    read_as_f32(integers.entry(), out);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.safetensors: tensor \"t\": found dtype I64"));
  }
  const OneTensor unknown("F64", std::vector<double>{1, 2});
  EXPECT_THROW(read_as_f32(unknown.entry(), out), InputError);
}

TEST(TensorConvert, ExactReadsCheckTypeAndSize) {
  const OneTensor tensor("I16", std::vector<int16_t>{-3, 4});
  std::vector<int16_t> out(2);
  read_exact(tensor.entry(), DType::kI16, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out[0], -3);
  EXPECT_EQ(out[1], 4);
  EXPECT_THROW(read_exact(tensor.entry(), DType::kBF16, std::as_writable_bytes(std::span(out))), InputError);
  out.resize(3);
  EXPECT_THROW(read_exact(tensor.entry(), DType::kI16, std::as_writable_bytes(std::span(out))), InputError);
}

TEST(TensorConvert, EmitsMastersInPieces) {
  std::vector<bf16> hi(600'000);
  std::vector<int16_t> lo(hi.size());
  for (size_t i = 0; i < hi.size(); ++i) {
    const SplitMaster split = split_master(static_cast<float>(i) * 1.37e-3f);
    hi[i] = split.hi;
    lo[i] = split.lo;
  }
  std::vector<std::byte> out;
  const auto sink = [&](std::span<const std::byte> piece) {
    EXPECT_LE(piece.size(), size_t{1} << 20);
    out.insert(out.end(), piece.begin(), piece.end());
  };
  emit_master(hi, lo, DType::kF32, sink);
  ASSERT_EQ(out.size(), hi.size() * 4);
  for (size_t i = 0; i < hi.size(); ++i) {
    float v = 0;
    std::memcpy(&v, out.data() + i * 4, 4);
    ASSERT_EQ(v, static_cast<float>(i) * 1.37e-3f);
  }
  EXPECT_THROW(emit_master(hi, lo, DType::kF16, sink), UsageError);
}

}  // namespace
}  // namespace lazytrain::model
