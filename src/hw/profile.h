// What the planner knows of a machine, and the library of machines that is built into the program (docs/profiles.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace lazytrain::hw {

// Rates in bytes a second, 0 where there is no such link.
struct Links {
  double h2d = 0;
  double d2h = 0;
  double joint = 0;  // both directions at once, summed
  double disk_read = 0;
  double disk_write = 0;
};

// A measured matrix product: c [m, n] = a [m, k] b [k, n].
struct GemmSample {
  int64_t m = 0, n = 0, k = 0;
  double flops = 0;  // a second
};

// Measured causal attention, forward and backward, over documents of `context` tokens.
struct AttentionSample {
  int64_t tokens = 0, context = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
  double flops = 0;  // a second, masked pairs not counted
};

// One op of a model as it ran here, once: what its declared work (graph::Work) took. `tokens` are its rows.
struct OpSample {
  std::string op;  // graph::OpKind::name
  bool backward = false;
  int64_t tokens = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

struct Profile {
  std::string name;
  bool one_memory = false;    // device and host are the same memory: nothing is copied between them
  double gemm_flops = 0;      // sustained, at training shapes, by a product of very many rows
  double gemm_half_rows = 0;  // rows (tokens) at which a product runs at half of gemm_flops; 0: at the full rate always
  double attention_flops = 0;   // sustained, of attention; 0: gemm_flops
  double memory_bandwidth = 0;  // device memory, bytes a second, for row ops
  double host_bandwidth = 0;    // what the host optimizer streams, bytes a second
  double launch_s = 0;          // overhead of one compute instruction
  Links links;
  int64_t device_bytes = 0;    // usable: reserved_bytes are taken off already
  int64_t reserved_bytes = 0;  // of the device's memory, for driver, context and libraries
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;                  // 0: no disk
  std::vector<GemmSample> gemm;            // what gemm_flops and gemm_half_rows were taken from, where measured
  std::vector<AttentionSample> attention;  // likewise for attention_flops
  std::vector<OpSample> ops;               // of a model, where its ops were run; they correct the rates (plan/cost.h)
  // Where a figure comes from, by its key ("gemm_flops", "links.h2d"); library profiles have one for each figure.
  std::map<std::string, std::string> sources;

  // FLOPs a second of a matrix product over `rows` tokens: gemm_flops · rows / (rows + gemm_half_rows).
  double gemm_rate(double rows) const { return gemm_flops * rows / (rows + gemm_half_rows); }
  double attention_rate() const { return attention_flops > 0 ? attention_flops : gemm_flops; }
};

Json to_json(const Profile& profile);
// Throws InputError naming `where` and the key for a missing, mistyped, unknown, non-finite or out-of-range figure, for
// a machine of two memories without links, and for a disk without rates. `joint` is h2d + d2h when it is not given.
Profile profile_from_json(const Json& json, const std::string& where);

// The machines of profiles/*.json, in the order of their names, each with a source for every figure.
std::vector<Profile> library_profiles();
// The keys of the figures that the file `json` states and gives no source for.
std::vector<std::string> unsourced_figures(const Json& json);
// The library's profile of that name, else the profile in that file. UsageError with the names, the nearest first
// mentioned, when it is neither.
Profile find_profile(const std::string& name_or_file);

// Memory this process may still take: the least of MemAvailable and the cgroup limits (v1 and v2).
int64_t available_memory();
// Peak resident set of this process so far (VmHWM), bytes.
int64_t peak_resident_bytes();

}  // namespace lazytrain::hw
