#include "optim/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/arith.h"
#include "base/error.h"
#include "optim/moments8.h"

namespace lazytrain::optim {
namespace {

constexpr int64_t kGrain = 4 * kLargestBlock;
constexpr int64_t kPiece = 64 * kLargestBlock;
constexpr float kLargest = std::numeric_limits<float>::max();

float sound_m(float m) { return std::isnan(m) ? 0.0f : std::clamp(m, -kLargest, kLargest); }
float sound_root(float v) { return v > 0.0f ? std::sqrt(std::min(v, kLargest)) : 0.0f; }

void quantize_block(const float* m, const float* v, int8_t* m_codes, uint8_t* v_codes, float* scales, int64_t n) {
  float m_scale = 0.0f, root_scale = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    m_scale = std::max(m_scale, std::abs(sound_m(m[i])));
    root_scale = std::max(root_scale, sound_root(v[i]));
  }
  if (m_scale < kSmallestScaleOfM) m_scale = 0.0f;
  scales[0] = m_scale;
  scales[1] = root_scale;
  const BlockFactors factors(m_scale, root_scale);
  for (int64_t i = 0; i < n; ++i) {
    const float of_m = std::sqrt(std::abs(sound_m(m[i])) * factors.m);
    m_codes[i] = static_cast<int8_t>(std::copysign(of_m + 0.5f, m[i]));
    const float root = sound_root(v[i]);
    const float of_root = std::sqrt(root * factors.root) + 0.5f;
    v_codes[i] = static_cast<uint8_t>(root > 0.0f ? std::max(of_root, 1.0f) : 0.0f);
  }
}

void dequantize_block(const int8_t* m_codes, const uint8_t* v_codes, const float* scales, float* m, float* v,
                      int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    // 127^2 and 255^2 times the floats next to their reciprocals are exactly 1.
    const auto c = static_cast<float>(m_codes[i]);
    m[i] = c * std::abs(c) * (1.0f / kMostM) * scales[0];
    const auto k = static_cast<float>(v_codes[i]);
    const float root = k * k * (1.0f / kMostV) * scales[1];
    v[i] = root * root;
  }
}

// Calls body(first, count, moments) for every block of n elements.
template <typename Body>
void for_each_block(const Moments8& moments, int64_t n, ThreadPool* pool, const Body& body) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += moments.block) {
      body(first, std::min(moments.block, end - first), advance(moments, first / moments.block));
    }
  };
  if (pool == nullptr) {
    range(0, n);
  } else {
    pool->parallel_for(n, kGrain, range);
  }
}

}  // namespace

Moments8 advance(const Moments8& moments, int64_t block) {
  return {moments.m + block * moments.block, moments.v + block * moments.block, moments.scales + 2 * block,
          moments.block};
}

Moments moments_at(const MomentLayout& layout, std::byte* base, int64_t first) {
  const int64_t block = layout.format.kind == StateKind::kFp32 ? 1 : layout.format.block;
  if (first < 0 || first > layout.elements || first % block != 0) {
    throw RunError("optimizer state: element {} is not the start of a block of {} in a parameter of {}", first, block,
                   layout.elements);
  }
  const auto at = [&](std::string_view name) { return base + layout.array(name).offset_bytes; };
  if (layout.format.kind == StateKind::kFp32) {
    return Moments32{reinterpret_cast<float*>(at("m")) + first, reinterpret_cast<float*>(at("v")) + first};
  }
  return advance({reinterpret_cast<int8_t*>(at("m8")), reinterpret_cast<uint8_t*>(at("v8")),
                  reinterpret_cast<float*>(at("scales")), block},
                 first / block);
}

void quantize_moments(const float* m, const float* v, const Moments8& to, int64_t n, ThreadPool* pool) {
  for_each_block(to, n, pool, [&](int64_t first, int64_t count, const Moments8& at) {
    quantize_block(m + first, v + first, at.m, at.v, at.scales, count);
  });
}

void dequantize_moments(const Moments8& from, float* m, float* v, int64_t n, ThreadPool* pool) {
  for_each_block(from, n, pool, [&](int64_t first, int64_t count, const Moments8& at) {
    dequantize_block(at.m, at.v, at.scales, m + first, v + first, count);
  });
}

void convert_moments(const Moments& from, const Moments& to, int64_t n, ThreadPool* pool) {
  const auto* plain_from = std::get_if<Moments32>(&from);
  const auto* plain_to = std::get_if<Moments32>(&to);
  if (plain_from != nullptr && plain_to != nullptr) {
    std::copy_n(plain_from->m, n, plain_to->m);
    std::copy_n(plain_from->v, n, plain_to->v);
  } else if (plain_from != nullptr) {
    quantize_moments(plain_from->m, plain_from->v, std::get<Moments8>(to), n, pool);
  } else if (plain_to != nullptr) {
    dequantize_moments(std::get<Moments8>(from), plain_to->m, plain_to->v, n, pool);
  } else {
    const auto& codes_from = std::get<Moments8>(from);
    const auto& codes_to = std::get<Moments8>(to);
    // Both kinds of blocks begin where a piece does: sizes are powers of two.
    std::vector<float> m(static_cast<size_t>(std::min(n, kPiece))), v(m.size());
    for (int64_t first = 0; first < n; first += kPiece) {
      const int64_t count = std::min(kPiece, n - first);
      dequantize_moments(advance(codes_from, first / codes_from.block), m.data(), v.data(), count, pool);
      quantize_moments(m.data(), v.data(), advance(codes_to, first / codes_to.block), count, pool);
    }
  }
}

std::optional<int64_t> first_bad_scale(const float* scales, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!(scales[i] >= 0.0f && scales[i] <= kLargest)) return i;
  }
  return std::nullopt;
}

}  // namespace lazytrain::optim
