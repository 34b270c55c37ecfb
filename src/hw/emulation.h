// Another machine, acted on this one: its links and memory sizes around this machine's kernels.
#pragma once

#include "hw/profile.h"

namespace lazytrain::hw {

struct Emulation {
  Profile machine;   // what is planned with and what the executor is held to, in seconds here
  double scale = 1;  // 1 s of the target machine lasts this long here
};

// Time is stretched by the ratio of both machines' matrix products, so that transfers and updates take the share of a
// step that they take there. Compute figures are `here`'s (measured with the threads that stand for the card), sizes
// the target's. Throws UsageError when a link would have to be faster than memory is here, or when the target has no
// links.
Emulation emulate(const Profile& target, const Profile& here);

// The same with given factors, each of something here for one there: `time` of the seconds, `transfer` of the bytes
// that links and the host move and that host and disk hold, `device` of the bytes that the device holds.
struct Scaling {
  double time = 1;
  double transfer = 1;
  double device = 1;
};
Emulation emulate(const Profile& target, const Profile& here, const Scaling& scaling);

// "1 s of rtx3090 = 212 s here"
std::string describe(const Emulation& emulation, const std::string& target);

}  // namespace lazytrain::hw
