// A queue of work on a CUDA device: what is put into one stream runs in that order.
#pragma once

#include <cstdint>

namespace lazytrain::cuda {

// Under nvcc a cudaStream_t behind another name; in the emulation what cuda/emulation.h says.
struct Stream;

// Blocks of a launch.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;  // at most 65535
};

// On a card: RunError when CUDA refused the launch that was just made. The plugin has it in a file for the C++
// compiler, since nvcc cannot compile what formats messages.
void check_launch(const Grid& grid, int threads);

}  // namespace lazytrain::cuda
