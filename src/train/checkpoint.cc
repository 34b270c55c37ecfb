#include "train/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/safetensors_writer.h"
#include "model/tensor_convert.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr std::string_view kMarker = "COMPLETE";
constexpr std::string_view kState = "state.safetensors";
constexpr std::string_view kTrainer = "trainer.json";

// The four arrays of a parameter as they lie in memory.
struct Piece {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<std::byte> bytes;
};

std::vector<Piece> pieces(const runtime::ModelState& state) {
  std::vector<Piece> list;
  const auto& units = state.graph().units;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].params.size(); ++p) {
      const graph::Parameter& parameter = units[u].params[p];
      if (parameter.tied) continue;
      const optim::AdamWArrays arrays = state.arrays(static_cast<int>(u), static_cast<int>(p));
      const auto n = static_cast<size_t>(parameter.elements);
      const auto add = [&](std::string_view what, DType dtype, auto* data) {
        list.push_back({fmt::format("{}/{}", parameter.name, what), dtype, parameter.shape,
                        std::as_writable_bytes(std::span(data, n))});
      };
      add("m", DType::kF32, arrays.m);
      add("v", DType::kF32, arrays.v);
      add("hi", DType::kBF16, arrays.hi);
      add("lo", DType::kI16, arrays.lo);
    }
  }
  return list;
}

Json to_json(const TrainerState& t) {
  return {{"format", kFormat},          {"step", t.step},
          {"updates", t.updates},       {"tokens", t.tokens},
          {"skipped", t.guard.skipped}, {"skipped_in_a_row", t.guard.in_a_row},
          {"model", t.model},           {"numbers", t.numbers}};
}

// The marker holds the sizes of the files, so that a truncated one is seen at once.
bool complete(const fs::path& checkpoint) {
  std::error_code ignored;
  if (!fs::exists(checkpoint / kMarker, ignored)) return false;
  try {
    const Json json = read_json(checkpoint / kMarker, 1 << 16);
    const JsonObject sizes(json, (checkpoint / kMarker).string());
    for (const std::string_view file : {kState, kTrainer}) {
      const auto size = fs::file_size(checkpoint / file, ignored);
      if (ignored || static_cast<int64_t>(size) != sizes.integer(file, 0, INT64_MAX)) return false;
    }
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// Marker first: from then on nothing takes the folder for a checkpoint.
void remove_checkpoint(const fs::path& checkpoint) {
  fs::remove(checkpoint / kMarker);
  fsync_folder(checkpoint);
  fs::remove_all(checkpoint);
}

}  // namespace

void CheckpointFolder::save(const TrainerState& trainer, const runtime::ModelState& state, int64_t keep) {
  try {
    fs::create_directories(folder_);
    const fs::path target = folder_ / fmt::format("step-{}", trainer.step);
    const fs::path temporary = folder_ / fmt::format("step-{}.tmp", trainer.step);
    if (complete(target)) return;  // the same step of the same run
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    const std::vector<Piece> list = pieces(state);
    std::vector<model::TensorSpec> specs;
    for (const Piece& piece : list) specs.push_back({piece.name, piece.dtype, piece.shape});
    model::write_safetensors(temporary / kState, specs, {{"format", "lazytrain"}},
                             [&](size_t index, const model::TensorSink& sink) { sink(list[index].bytes); });
    write_file(temporary / kTrainer, to_json(trainer).dump(2) + "\n");
    if (fs::exists(target)) remove_checkpoint(target);
    fs::rename(temporary, target);
    fsync_folder(folder_);
    const Json sizes = {{std::string(kState), fs::file_size(target / kState)},
                        {std::string(kTrainer), fs::file_size(target / kTrainer)}};
    write_file(target / kMarker, sizes.dump() + "\n");
    rotate(keep);
  } catch (const fs::filesystem_error& error) {
    throw RunError("checkpoint of step {}: {}", trainer.step, error.what());
  }
}

std::vector<std::pair<int64_t, fs::path>> CheckpointFolder::list() const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size()) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<fs::path> CheckpointFolder::newest() const {
  auto found = list();
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    if (complete(it->second)) return it->second;
    spdlog::warn("{}: not complete, an older checkpoint is taken", it->second.string());
  }
  return std::nullopt;
}

void CheckpointFolder::rotate(int64_t keep) {
  auto found = list();
  std::erase_if(found, [](const auto& entry) { return !complete(entry.second); });
  for (size_t i = 0; i + static_cast<size_t>(keep) < found.size(); ++i) remove_checkpoint(found[i].second);
  // What a kill left behind: temporary folders and unmarked ones older than the newest complete one.
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && !complete(entry.path())) fs::remove_all(entry.path());
  }
}

TrainerState CheckpointFolder::read_trainer(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kTrainer;
  const Json json = read_json(file, 1 << 16);
  const JsonObject object(json, file.string());
  if (object.integer("format", 0, 1000) != kFormat) {
    throw InputError("{}: checkpoint format {}, this version reads {}", file.string(),
                     object.integer("format", 0, 1000), kFormat);
  }
  TrainerState t;
  t.step = object.integer("step", 0, INT64_MAX);
  t.updates = object.integer("updates", 0, t.step);
  t.tokens = object.integer("tokens", 0, INT64_MAX);
  t.guard = {object.integer("skipped", 0, t.step), object.integer("skipped_in_a_row", 0, t.step)};
  t.model = object.string("model");
  t.numbers = object.string("numbers");
  return t;
}

TrainerState CheckpointFolder::load(const fs::path& checkpoint, runtime::ModelState& state) {
  TrainerState trainer = read_trainer(checkpoint);
  if (trainer.model != state.graph().fingerprint) {
    throw InputError(
        "{}: is of model {}, this run trains {}: set `output` to another folder or `model` to the run's own",
        checkpoint.string(), trainer.model, state.graph().fingerprint);
  }
  const model::SafetensorsFile file(checkpoint / kState);
  for (const Piece& piece : pieces(state)) {
    const model::TensorEntry* tensor = file.find(piece.name);
    if (tensor == nullptr) throw InputError("{}: tensor '{}' is missing", file.where(), piece.name);
    model::read_exact(*tensor, piece.dtype, piece.bytes);
    file.drop(*tensor);
  }
  file.check_unchanged();
  return trainer;
}

}  // namespace lazytrain::train
