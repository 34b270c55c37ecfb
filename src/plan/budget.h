// Whether a program fits, and what would make it fit.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/program.h"

namespace lazytrain::plan {

// What a run may take, in bytes; 0: no limit of its own.
struct Budgets {
  int64_t device = 0;           // device.memory
  int64_t host = 0;             // host.memory
  int64_t disk = 0;             // disk.memory
  int64_t available = 0;        // of the machine. Device and host are one memory: it bounds their sum
  bool disk_in_memory = false;  // disk.path is a file system in memory: its bytes are host memory
  // Of the run outside the program, counted against `host` and `available`.
  int64_t evaluation = 0;
  int64_t process = 0;  // the program itself, its libraries, data, staging of files
  int64_t besides() const { return evaluation + process; }
};

bool fits(const Program& program, const Budgets& budgets);

// Throws Infeasible: which tier lacks how many bytes, with the breakdown by purpose, and the cheapest remedies. Each
// remedy is a change of the policy that was compiled and fits, with its memory and its predicted time a token against
// this plan's; when none does, the message says so with the least that was found. `options` are those of `program`.
void check_budgets(const graph::Graph& graph, const Program& program, const CompileOptions& options,
                   const hw::Profile& machine, const Budgets& budgets);

}  // namespace lazytrain::plan
