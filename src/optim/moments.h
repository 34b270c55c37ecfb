// The two moments of a parameter where they lie, in fp32 or in 8-bit, and the conversions between the two.
//
// 8-bit: the elements of a block share two scales, the largest |m| = M and the largest sqrt(v) = S, and have a code
// each:
//   m = sign(c) (c / 127)^2 M,  c in [-127, 127];  sqrt(v) = (c / 255)^2 S,  c in [0, 255].
// Zero has a code of its own and the largest element of a block is exact. docs/optimizer.md compares the map with
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "base/thread_pool.h"
#include "optim/state_layout.h"

namespace lazytrain::optim {

// The arrays need no alignment beyond their type's and must not overlap.
struct Moments32 {
  float* m;
  float* v;
};

// From the start of a block on.
struct Moments8 {
  int8_t* m;
  uint8_t* v;
  float* scales;  // [blocks][2]: M and S
  int64_t block;  // elements, a multiple of 64 and at most kLargestBlock
};

using Moments = std::variant<Moments32, Moments8>;

// The moments of a parameter whose unit's state starts at `base`, from element `first` on. Updating a parameter piece
// by piece gives the bits of the whole. Throws RunError when `first` is not the start of a block of the parameter.
Moments moments_at(const MomentLayout& layout, std::byte* base, int64_t first = 0);

// From block number `block` on.
Moments8 advance(const Moments8& moments, int64_t block);

// fp32 to 8-bit. Code c is the integer nearest to x = 127 sqrt(|m| / M), or 255 sqrt(sqrt(v) / S), but at least 1 for a
// v above 0: the next update divides by its root. M below 2^-100 counts as 0, so does what is not a number and a v
// below 0; an infinity counts as the largest float. The error of an element, with x = c + e and |e| <= 1/2:
//   |m' - m| = M |c^2 - x^2| / 127^2 = M |e| |2 x - e| / 127^2 <= M (x + 1/4) / 127^2 = sqrt(|m| M) / 127 + M / 254^2
//   |r' - r| <= sqrt(r S) / 255 + S / 510^2, and at most S / 255^2 where c was raised to 1   (r = sqrt(v))
// adamw_update rounds the codes of v up or down at random, |e| < 1, which doubles the second bound:
//   |r' - r| < 2 sqrt(r S) / 255 + S / 255^2,   and r' > r / 4, since c >= 1 and x < c + 1 <= 2 c.
// `pool` may be null; neither it nor the instruction set changes a bit.
void quantize_moments(const float* m, const float* v, const Moments8& to, int64_t n, ThreadPool* pool);

// 8-bit to fp32. Quantising the result gives the same codes and scales again, unless a v is below the normal floats.
void dequantize_moments(const Moments8& from, float* m, float* v, int64_t n, ThreadPool* pool);

// The moments of n elements in another format, or in the same (a copy), for state that was saved under another
// optimizer.state. Nothing else as large as a few blocks is allocated. The two must not overlap.
void convert_moments(const Moments& from, const Moments& to, int64_t n, ThreadPool* pool);

// Index of the first of `count` scales that no update leaves behind (negative, infinite or not a number), for state
// read from a file; none when all are sound. Every byte is a sound code.
std::optional<int64_t> first_bad_scale(const float* scales, int64_t count);

}  // namespace lazytrain::optim
