// The last two steps of compiling: where every buffer lies, and what must wait for what.
#pragma once

#include "plan/program.h"

namespace lazytrain::plan {

inline constexpr int64_t kArenaAlignment = 64;  // a cache line

// Gives every buffer that is not state its offset, by liveness over the list (from its first use to its last), behind
// the `state_bytes` of its tier; sets tier_bytes.
void place_buffers(Program& program, const std::array<int64_t, 3>& state_bytes);

// Orders conflicting uses: of one buffer, and of buffers that share memory one after the other.
void add_dependencies(Program& program);

}  // namespace lazytrain::plan
