// When boundaries and retained sets leave the device and come back, at the granularity of windows.
#pragma once

#include <vector>

#include "hw/profile.h"

namespace lazytrain::plan {

// Something that leaves the device between its forward and its backward.
struct Offload {
  double bytes = 0;
  int release = 0;        // the window behind which it exists
  int need = 0;           // the window that reads it again
  bool on_device = true;  // it starts on the device and is copied out (embedded rows start on the host)
  bool disk = false;      // and goes on from the host to the disk
};

// What a window lasts and what must move in it anyway.
struct WindowTraffic {
  double seconds = 0;
  double h2d_bytes = 0;
  double d2h_bytes = 0;
  double disk_read_bytes = 0;
  double disk_write_bytes = 0;
};

struct Moves {
  int copied_out = 0;    // the window at whose end it has left the device
  int disk_written = 0;  // ... and the host; disk only
  int disk_read = 0;     // the window at whose start it begins to come back from disk; disk only
  int fetched = 0;       // the window at whose start it begins to come back to the device
  bool leaves = true;    // false: there is no time in which it would be off the device
  bool disk = false;     // false though asked for: there is no time in which it would be off the host
};

// Out as early as the links have time for, in order of release; back as late as they have, so that memory is held
// shortest. The links' time is what the mandatory traffic leaves, with the joint limit of both directions. `loss` is
// the window between forward and backward: nothing comes back before it. `slack`: windows that everything is given
// beyond that, so that what runs late holds up nothing; it costs memory.
std::vector<Moves> schedule_transfers(const std::vector<Offload>& offloads, const std::vector<WindowTraffic>& windows,
                                      int loss, const hw::Links& links, int slack);

}  // namespace lazytrain::plan
