#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace lazytrain {
namespace {

using ::testing::HasSubstr;

TEST(ParseBytes, TellsPowersOfTenFromPowersOfTwo) {
  EXPECT_EQ(parse_bytes("20GB", "k"), 20'000'000'000);
  EXPECT_EQ(parse_bytes("20GiB", "k"), 21'474'836'480);
  EXPECT_EQ(parse_bytes("512MB", "k"), 512'000'000);
  EXPECT_EQ(parse_bytes("512 MiB", "k"), 536'870'912);
  EXPECT_EQ(parse_bytes("1kB", "k"), 1000);
  EXPECT_EQ(parse_bytes("1KB", "k"), 1000);
  EXPECT_EQ(parse_bytes("1KiB", "k"), 1024);
  EXPECT_EQ(parse_bytes("2TB", "k"), 2'000'000'000'000);
  EXPECT_EQ(parse_bytes("2TiB", "k"), 2'199'023'255'552);
  EXPECT_EQ(parse_bytes("1.5GB", "k"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("1.5e9", "k"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("300", "k"), 300);
  EXPECT_EQ(parse_bytes("300B", "k"), 300);
  EXPECT_EQ(parse_bytes("0", "k"), 0);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"abc", "", "GB", "20 QB", "20gb", "20GBx", "1,5GB", "1.5.5GB", " 20GB", "20GB ", "0x10",
                           "nan", "inf", "infGB", "1e999", "20 G B", "+5GB"}) {
    try {
      parse_bytes(text, "device.memory");
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("device.memory"));
      EXPECT_THAT(error.what(), HasSubstr("'" + std::string(text) + "'"));
    }
  }
}

TEST(ParseBytes, RefusesWhatNoSizeCanBe) {
  for (const char* text : {"-1", "-20GB", "1e300", "10000000TB"})
    EXPECT_THROW(parse_bytes(text, "k"), UsageError) << text;
  EXPECT_EQ(parse_bytes("9e18", "k"), 9'000'000'000'000'000'000);
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(1'240'000'000), "1.24 GB");
  EXPECT_EQ(format_bytes(12'400'000'000), "12.4 GB");
  EXPECT_EQ(format_bytes(124'000'000'000), "124 GB");
  EXPECT_EQ(format_bytes(999'600'000), "1.00 GB");
  EXPECT_EQ(format_bytes(9'996'000), "10.0 MB");
  EXPECT_EQ(format_bytes(-2'000'000), "-2.00 MB");
}

TEST(Format, Seconds) {
  EXPECT_EQ(format_seconds(12.3e-6), "12.3 us");
  EXPECT_EQ(format_seconds(12.3e-3), "12.3 ms");
  EXPECT_EQ(format_seconds(4.2), "4.20 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "?");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(135e6), "135 M");
  EXPECT_EQ(format_count(1.54e9), "1.54 B");
  EXPECT_EQ(format_count(12), "12");
}

}  // namespace
}  // namespace lazytrain
