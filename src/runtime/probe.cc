#include "runtime/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/arith.h"
#include "optim/adamw.h"
#include "plan/timeline.h"
#include "runtime/arena.h"
#include "runtime/probe_compute.h"
#include "runtime/probe_timing.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kLine = 64;
// Larger than the caches that two threads may fill, small beside any model that is trained.
constexpr int64_t kQuickBytes = int64_t{96} << 20;
constexpr int64_t kThoroughBytes = int64_t{256} << 20;
constexpr int kLaunches = 200;
constexpr int kQuickRounds = 3, kThoroughRounds = 3;

// c = 0.5 a + b: what a row op moves, 12 bytes an element.
double stream_rate(ThreadPool& pool, const Arena& arena, double budget_s) {
  const int64_t n = arena.bytes() / 12 / kLine * kLine;
  const auto* a = reinterpret_cast<const float*>(arena.at(0));
  const auto* b = reinterpret_cast<const float*>(arena.at(4 * n));
  auto* c = reinterpret_cast<float*>(arena.at(8 * n));
  const double seconds = fastest_seconds(budget_s, [&] {
    pool.parallel_for(n, kLine, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c[i] = 0.5f * a[i] + b[i];
    });
  });
  return 12.0 * static_cast<double>(n) / seconds;
}

double update_rate(ThreadPool& pool, const Arena& arena, DType compute, double budget_s) {
  const int64_t n = arena.bytes() / (12 + size_of(compute)) / kLine * kLine;
  const optim::AdamWArrays arrays = {
      .hi = reinterpret_cast<bf16*>(arena.at(0)),
      .lo = reinterpret_cast<int16_t*>(arena.at(2 * n)),
      .m = reinterpret_cast<float*>(arena.at(4 * n)),
      .v = reinterpret_cast<float*>(arena.at(8 * n)),
  };
  const optim::AdamWStep step = optim::adamw_step({}, 1e-3, 1, 1.0, true);
  std::byte* gradient = arena.at(12 * n);
  const double seconds = fastest_seconds(budget_s, [&] {
    if (compute == DType::kBF16) {
      optim::adamw_update(step, arrays, reinterpret_cast<const bf16*>(gradient), n, &pool);
    } else {
      optim::adamw_update(step, arrays, reinterpret_cast<const float*>(gradient), n, &pool);
    }
  });
  return plan::kUpdateBytes * static_cast<double>(n) / seconds;
}

// Copies between two memories that are one here: a thread each way, and both at once.
hw::Links copy_rates(ThreadPool& pool, const Arena& arena, double budget_s) {
  const int64_t quarter = arena.bytes() / 4 / kLine * kLine;
  const auto bytes = static_cast<double>(quarter);
  const auto copy = [&](int64_t to, int64_t from) {
    std::memcpy(arena.at(to * quarter), arena.at(from * quarter), static_cast<size_t>(quarter));
  };
  hw::Links links;
  links.h2d = bytes / fastest_seconds(budget_s, [&] { copy(1, 0); });
  links.d2h = bytes / fastest_seconds(budget_s, [&] { copy(0, 1); });
  // On a pool of one thread both ways take turns, which is the sum such a machine has.
  links.joint = 2 * bytes / fastest_seconds(budget_s, [&] {
                  pool.run(2, [&](int64_t way) { way == 0 ? copy(1, 0) : copy(2, 3); });
                });
  return links;
}

double launch_seconds(ThreadPool& pool) {
  return seconds_of([&] {
           for (int i = 0; i < kLaunches; ++i) pool.run(pool.threads(), [](int64_t) {});
         }) /
         kLaunches;
}

// Finite data of a usual size, 0.0115 as float and as bf16. It also takes the pages before anything is timed.
void fill(ThreadPool& pool, const Arena& arena) {
  pool.parallel_for(arena.bytes(), kLine, [&](int64_t begin, int64_t end) {
    std::memset(arena.at(begin), 0x3c, static_cast<size_t>(end - begin));
  });
}

// What takes seconds: rates by size, copies. `layer_rate` is that of kLayerTokens rows.
void measure_by_size(ThreadPool& pool, const Arena& arena, DType compute, double budget_s, double layer_rate,
                     hw::Profile& profile) {
  fill(pool, arena);
  profile.gemm = gemm_samples(pool, arena, compute, budget_s);
  profile.gemm_half_rows = half_rows(profile.gemm);
  profile.gemm_flops = layer_rate * (1 + profile.gemm_half_rows / static_cast<double>(kLayerTokens));
  fill(pool, arena);
  profile.attention = attention_samples(pool, arena, compute, budget_s);
  profile.attention_flops = profile.attention.at(profile.attention.size() / 2).flops;
  profile.links = copy_rates(pool, arena, budget_s);
}

std::map<std::string, std::string> sources(int threads, DType compute) {
  const std::string how = fmt::format("measured by lazytrain profile, {} threads, {}", threads, name_of(compute));
  return {{"gemm_flops", how + ": the three products of a linear layer, carried over to many rows by gemm_half_rows"},
          {"gemm_half_rows", how + ": fitted to the samples of one weight in \"gemm\""},
          {"attention_flops", how + ": the middle sample of \"attention\""},
          {"memory_bandwidth", how + ": two streams read, one written"},
          {"host_bandwidth", how + ": AdamW updates"},
          {"launch_s", how + ": an empty call of all threads"},
          {"links.h2d", "measured by lazytrain profile: a copy in memory by one thread"},
          {"links.d2h", "measured by lazytrain profile: a copy in memory by one thread"},
          {"links.joint", "measured by lazytrain profile: two copies in memory at once"},
          {"links.disk_read", "no disk was measured"},
          {"links.disk_write", "no disk was measured"},
          {"device_bytes", "memory that was available when measured"},
          {"reserved_bytes", "none: device and host are one memory"},
          {"host_bytes", "memory that was available when measured"},
          {"disk_bytes", "no disk was measured"}};
}

}  // namespace

hw::Profile measure_this_machine(ThreadPool& pool, DType compute, bool quick) {
  // Every thread of a product may want some MiB of scratch.
  const int64_t scratch = int64_t{8 << 20} * pool.threads() + (int64_t{64} << 20);
  const Arena arena(std::max(quick ? kQuickBytes : kThoroughBytes, scratch), "the probe of this machine");
  const double budget_s = quick ? 0.03 : 0.2;
  hw::Profile profile;
  profile.name = "this";
  profile.one_memory = true;
  fill(pool, arena);
  const int rounds = quick ? kQuickRounds : kThoroughRounds;
  profile.gemm_flops = linear_layer_rate(pool, arena, compute, budget_s, rounds, [&] {
    // The mean, not the least: a call that no other thread woke up for is no call of all threads.
    profile.launch_s += launch_seconds(pool) / rounds;
    profile.memory_bandwidth = std::max(profile.memory_bandwidth, stream_rate(pool, arena, budget_s / 6));
  });
  if (!quick) {
    measure_by_size(pool, arena, compute, budget_s, profile.gemm_flops, profile);
    profile.sources = sources(pool.threads(), compute);
  }
  // Restores what the streams and products left: the optimizer must not meet infinities.
  std::memset(arena.at(0), 0, static_cast<size_t>(arena.bytes()));
  profile.host_bandwidth = update_rate(pool, arena, compute, budget_s);
  const int64_t available = hw::available_memory() + arena.bytes();  // the probe's own memory is free again behind it
  profile.device_bytes = available;
  profile.host_bytes = available;
  return profile;
}

}  // namespace lazytrain::runtime
