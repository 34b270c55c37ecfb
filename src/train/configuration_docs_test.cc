#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "train/run_config.h"

namespace lazytrain::train {
namespace {

// The list in the documentation is the table of keys, word for word.
TEST(ConfigurationDocs, ListEveryKeyAsItIs) {
  const auto path = std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "docs" / "configuration.md";
  const std::string page = read_file(path, 1 << 20);
  const std::string expected = "```\n" + describe_keys() + "```\n";
  EXPECT_NE(page.find(expected), std::string::npos)
      << path << ": its list of keys is not that of the program. Replace it by:\n"
      << describe_keys();
}

}  // namespace
}  // namespace lazytrain::train
