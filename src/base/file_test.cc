#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <vector>

#include "base/error.h"

namespace lazytrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("file_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

std::string text_of(const MappedFile& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

TEST_F(FileTest, ReadsWithinTheLimit) {
  put("a", std::string("x\0y", 3));
  EXPECT_EQ(read_file(folder_ / "a", 3), std::string("x\0y", 3));
  EXPECT_THROW(read_file(folder_ / "a", 2), InputError);
  EXPECT_THROW(read_file(folder_ / "absent", 9), InputError);
  EXPECT_THROW(read_file(folder_, 9), InputError);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(folder_ / "pipe", 9), InputError);  // and does not wait for a writer
}

TEST_F(FileTest, MapsAndMoves) {
  put("a", "hello");
  put("empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
  EXPECT_THROW(MappedFile(folder_ / "absent"), InputError);
  MappedFile map(folder_ / "a");
  EXPECT_EQ(text_of(map), "hello");
  MappedFile moved(std::move(map));
  EXPECT_EQ(text_of(moved), "hello");
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(text_of(assigned), "hello");
}

TEST_F(FileTest, DroppedPagesReadTheSameAgain) {
  std::string text(300'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31);
  put("a", text);
  const MappedFile map(folder_ / "a");
  EXPECT_EQ(text_of(map), text);
  map.drop(5000, 200'000);
  map.drop(0, text.size());
  map.drop(10, 0);
  EXPECT_EQ(text_of(map), text);
}

TEST_F(FileTest, AtomicWriteIsWholeOrNotThere) {
  put("a", "old");
  {
    AtomicFile file(folder_ / "a");
    file.reserve(1 << 20);
    file.write("new");
    EXPECT_EQ(read_file(folder_ / "a", 9), "old");
  }
  EXPECT_EQ(read_file(folder_ / "a", 9), "old");
  EXPECT_EQ(count(), 1u);
  {
    AtomicFile file(folder_ / "a");
    file.reserve(1 << 20);
    file.write("new");
    file.write(" text");
    file.commit();
  }
  EXPECT_EQ(read_file(folder_ / "a", 9), "new text");
  EXPECT_EQ(count(), 1u);
  write_file(folder_ / "b", "");
  EXPECT_EQ(read_file(folder_ / "b", 0), "");
}

TEST_F(FileTest, WriteErrorsNameThePathAndTheReason) {
  try {
    write_file(folder_ / "absent" / "a", "x");
    FAIL();
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("absent/a.tmp: cannot be written: No such file"));
  }
  fs::create_directories(folder_ / "taken" / "full");
  EXPECT_THROW(write_file(folder_ / "taken", "x"), RunError);
  EXPECT_FALSE(fs::exists(folder_ / "taken.tmp"));
  if (fs::exists("/dev/full")) {
    fs::create_symlink("/dev/full", folder_ / "full.tmp");
    try {
      write_file(folder_ / "full", "x");
      FAIL();
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    }
  }
}

TEST_F(FileTest, ReserveFindsAFullDisk) {
  AtomicFile file(folder_ / "a");
  try {
    file.reserve(int64_t{1} << 60);  // an exabyte
    GTEST_SKIP() << "this file system does not reserve space";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no room for 1152921504606846976 bytes"));
  }
}

}  // namespace
}  // namespace lazytrain
