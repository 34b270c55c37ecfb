// Logging goes to stderr (stdout belongs to results and --json). Use spdlog's calls: spdlog::info("...", args).
#pragma once

#include <spdlog/spdlog.h>

namespace lazytrain {

// Sends the default logger to stderr with a short pattern; `level` is a spdlog level.
void init_logging(spdlog::level::level_enum level);

}  // namespace lazytrain
