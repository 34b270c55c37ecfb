#include "runtime/cuda_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "runtime/state_testing.h"

namespace lazytrain::runtime {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::filesystem::path& file) {
  try {
    load_cuda_plugin(file);
  } catch (const RunError& error) {
    return error.what();
  }
  return "none";
}

TEST(CudaPlugin, SaysWhyThereIsNone) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.path() / "absent.so"), HasSubstr("there is no"));
  std::ofstream(folder.path() / "text.so") << "this is no library";
  EXPECT_THAT(refusal(folder.path() / "text.so"), HasSubstr("cannot be loaded"));
  // A library of something else.
  const std::filesystem::path other = "/lib/x86_64-linux-gnu/libm.so.6";
  if (!std::filesystem::exists(other)) return;
  EXPECT_THAT(refusal(other), HasSubstr("another version"));
}

}  // namespace
}  // namespace lazytrain::runtime
