// The compiler behind compile(): walks the windows of a step and writes down what each lane does.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/program.h"
#include "plan/transfer_schedule.h"
#include "plan/windows.h"

namespace lazytrain::plan {

class Compiler {
 public:
  Compiler(const graph::Graph& graph, const Policy& policy, const CompileOptions& options);
  Program run();

 private:
  // A boundary or retained set that leaves the device, with its buffers by micro-batch.
  struct Away {
    int unit = 0;
    bool retained = false;
    int need = 0;  // the window that reads it again
    Moves moves;
    std::vector<int> host;       // written by copy-out (or the embedding)
    std::vector<int> on_disk;    // disk only
    std::vector<int> host_back;  // disk only: read back
  };

  const graph::Unit& unit(int u) const { return graph_.units[static_cast<size_t>(u)]; }
  const UnitPolicy& policy(int u) const { return program_.policy.units[static_cast<size_t>(u)]; }
  bool split() const { return !program_.one_memory; }
  bool tied(int u) const { return graph_.tied && u == head_; }
  bool merges() const { return options_.compute == DType::kF32; }  // both weight halves into one fp32 copy
  Lane lane_of(int u) const;
  Tier weight_home(int u) const;
  Tier optimizer_home(int u) const;
  Tier gradient_home(int u) const;
  bool state_on_disk(int u) const;  // any of it
  bool kernels_on_host(int u) const { return split() && u == 0; }
  Tier near_disk() const { return split() ? Tier::kHost : Tier::kDevice; }  // the memory that the disk's bytes pass
  int64_t padded(int64_t bytes) const;                                      // of what may go to disk
  int micros() const { return program_.micro_batches; }

  // compiler_state.cc: what lives across steps, and gradients on their way to it.
  void check_homes() const;
  void add_state();
  void add_unit_state(int u);
  void check_early_updates() const;
  int64_t early_elements(int u) const;
  std::vector<int64_t> cuts_of(int u) const;
  void add_scratch();
  int add_buffer(Purpose purpose, Tier tier, int u, int64_t bytes, const std::string& name);
  int add_state_buffer(Purpose purpose, Tier tier, int u, int64_t bytes, const std::string& name);
  Instruction& emit(Action action, Lane lane, int u, std::vector<Use> uses);
  void transfer(Action action, Lane lane, int u, int micro, int from, int to);
  void open_gradient(int u);
  void emit_accumulates(size_t keep);
  void hand_over_tied_gradient();

  // compiler_update.cc: updates, and weights on their way to the kernels.
  void emit_update(int u, int weights_for_window);
  void emit_piece_update(int u, int piece, int weights_for_window);
  void emit_early_update(int u);
  void stage(int u, int piece);  // reads what an update needs from disk
  void write_back(size_t keep);
  void prepare_weights(size_t window);
  void read_weights(size_t window);  // from disk, ahead of prepare_weights
  int add_weight_copy(int u, const std::string& what);
  int read_copy(int u, const std::string& what);
  int copy_in(int u, int from, Tier to);

  // compiler.cc: the windows.
  void plan_moves();
  std::vector<WindowTraffic> traffic() const;
  double window_seconds(const Window& window) const;
  void leave(int window);      // copy-outs and disk writes that end with it
  void come_back(int window);  // disk reads and fetches that begin with it
  void emit_window(int window);
  Instruction compute(Pass pass, int u, int m, int layout, int first, int last);
  int new_boundary(int boundary, int m, Tier tier, std::string_view what);
  int workspace(int u, int layout, std::string_view what);
  int layout_of(int u, Pass pass);
  void emit_forward(const Window& window, int m);
  void emit_loss(int u, int m);
  void emit_backward(int u, int m);
  void bring_gradient_to_host(int m);
  void wait_for_all_updates();

  const graph::Graph& graph_;
  const CompileOptions& options_;
  Program program_;
  std::array<int64_t, 3> state_bytes_ = {0, 0, 0};
  int head_ = 0;
  std::vector<Window> windows_;
  std::vector<int> weights_, optimizer_, stored_gradients_;  // state buffers by unit; -1: on disk
  struct PieceOnDisk {
    int hi = -1, lo = -1, optimizer = -1, gradient = -1;  // state buffers; -1: in memory
  };
  std::vector<std::vector<PieceOnDisk>> on_disk_;  // by unit, as Program::state
  bool uses_disk_ = false;
  int compute_scratch_ = -1, host_scratch_ = -1;
  std::vector<std::vector<int>> boundaries_;  // [boundary][micro-batch], the current instance
  std::vector<std::vector<int>> retained_;    // [unit][micro-batch]
  std::vector<int> gradients_;                // boundary gradient by micro-batch
  std::vector<Away> away_;                    // by release
  std::vector<size_t> back_order_;            // of away_: the earliest need first
  std::vector<bool> updated_;
  std::map<std::pair<int, int>, int> staged_;        // read, by unit and piece: its buffer
  std::deque<std::pair<int, int>> staged_to_write_;  // updated, not yet written back
  std::vector<int> window_weights_;                  // by window: what its kernels read; -1: not there yet
  std::vector<int> window_source_;                   // by window: copy of weights whose home is the disk
  std::vector<int> window_tied_source_;              // by window: likewise of a tied head's matrix
  std::vector<int> kept_weights_;                    // by unit: streamed in its forward and still there
  int weight_buffer_ = -1, gradient_buffer_ = -1, tied_streamed_ = -1, tied_gradient_ = -1;
  std::deque<std::pair<int, int>> accumulates_;  // unit, its gradient buffer
  std::map<std::pair<int, Pass>, int> layouts_;
};

}  // namespace lazytrain::plan
