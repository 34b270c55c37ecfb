// Checkpoints: OUTPUT/checkpoints/step-N/ with state.safetensors (split masters and moments by parameter), trainer.json
// and the marker COMPLETE with sizes and hashes of both. Written to a temporary folder, fsynced, renamed, marked last;
// older ones are removed after, marker first. A kill at any instant leaves the newest marked checkpoint whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "optim/step_guard.h"
#include "runtime/model_state.h"

namespace lazytrain::train {

// All that a run needs besides the arrays to go on bit for bit.
struct TrainerState {
  int64_t step = 0;     // steps done
  int64_t updates = 0;  // updates applied (steps less skipped ones)
  int64_t tokens = 0;   // counted so far
  optim::StepGuard::Counts guard;
  std::string model;    // graph fingerprint
  std::string numbers;  // numeric_fingerprint of the configuration
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::filesystem::path& folder) : folder_(folder) {}

  // The same bytes wherever the state lies; from disk it passes through in pieces. Throws RunError naming the path and
  // the cause (disk full: how much is needed); what was there before stays.
  void save(const TrainerState& trainer, const runtime::ModelState& state, int64_t keep);

  // The newest complete checkpoint, none when there is none. Incomplete ones that are newer are logged.
  std::optional<std::filesystem::path> newest() const;
  bool any() const;  // whether there is a complete one; logs nothing

  // Fills `state` and returns the trainer's. Moments that were saved in other formats than the state's (under another
  // optimizer.state) are converted, which is logged; kWeights leaves the state's moments alone. Throws InputError when
  // a file is damaged (its hash is not the marker's, scales that no update leaves), of another step than its folder or
  // of another model.
  enum class Take : uint8_t { kAll, kWeights };
  static TrainerState load(const std::filesystem::path& checkpoint, runtime::ModelState& state, Take take = Take::kAll);
  static TrainerState read_trainer(const std::filesystem::path& checkpoint);

 private:
  std::vector<std::pair<int64_t, std::filesystem::path>> list() const;  // step-N folders by N
  void rotate(int64_t keep);

  std::filesystem::path folder_;
};

}  // namespace lazytrain::train
