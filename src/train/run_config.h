// The configuration of a run: one YAML file, `key=value` overrides. One table of keys reads, checks, prints and
// documents them (run_config.cc); a key that is not in it is an error that names the nearest one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "optim/adamw.h"
#include "optim/schedule.h"

namespace lazytrain::train {

struct RunConfig {
  std::filesystem::path model;   // Hugging Face folder
  std::filesystem::path output;  // run folder
  struct Data {
    std::filesystem::path train, eval, cache;
    std::string format = "auto";   // auto, json or jsonl
    std::string prompt, response;  // names of the keys, empty: found by name
    std::string chat_template = "chat";
    bool pack = true;
    bool shuffle = true;
  } data;
  int64_t seq = 1024;
  int64_t batch = 8;
  int64_t micro_batch = 0;  // 0: the whole batch
  int64_t steps = 0;        // 0: epochs decide
  double epochs = 0;        // 0 with steps 0: one epoch
  uint64_t seed = 42;
  DType compute = DType::kBF16;
  struct Device {
    std::string kind = "cpu";
    std::string profile;  // the machine to emulate: its links and memory, scaled to this machine's compute
    std::string like;  // CONFIG@PROFILE@BATCHxSEQ: emulate the machine that is to this run what PROFILE is to that one
    int64_t memory = 0;   // 0: no cap of its own
    int64_t threads = 0;  // 0: as many as the process may use
  } device;
  int64_t host_memory = 0;  // 0: what is available
  struct Disk {
    std::filesystem::path path;  // folder for the disk tier; empty: none
    int64_t memory = 0;          // 0: what is free there
    bool verify = false;         // checksums of everything that is read back
  } disk;
  struct Plan {
    std::string policy = "auto";
    std::string solver = "auto";
    double time_limit_s = 10;
    double gap = 0.005;
    bool replan = true;  // again between steps, where times are not those that the plan was made with
  } plan;
  struct Optimizer {
    std::string state = "fp32";
    optim::Schedule schedule{.kind = optim::ScheduleKind::kCosine, .lr = 1e-5, .warmup = 0.03};
    optim::AdamWOptions adamw{.weight_decay = 0.01};
    double clip = 1.0;  // 0: off
  } optimizer;
  int64_t save_every = 0;  // steps; 0: at the end only
  int64_t save_keep = 2;
  int64_t eval_every = 0;  // steps; 0: at the end only
  int64_t log_every = 1;
  bool tensorboard = false;
};

// Reads the file, applies overrides ("optimizer.lr=1e-4"), checks ranges and that required keys are set. Relative paths
// are taken from the current folder. Throws UsageError naming file, line and key.
RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// A file as it is, its keys and ranges checked but not what they lead to: for the config.yaml of an earlier run.
RunConfig read_run_config(const std::filesystem::path& file);

// The resolved configuration as YAML that load_run_config reads back to the same value.
std::string to_yaml(const RunConfig& config);

// What must not change between a run and its resumption: everything that determines the numbers.
std::string numeric_fingerprint(const RunConfig& config);

// Which of those keys differ, and data.train: "batch: 2 -> 4".
std::vector<std::string> changed_keys(const RunConfig& before, const RunConfig& now);

// For documentation and --help: "key  default  meaning" lines.
std::string describe_keys();

}  // namespace lazytrain::train
