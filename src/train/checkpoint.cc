#include "train/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <future>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
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
constexpr std::string_view kHashes = "xxh3";
constexpr int64_t kMaxTrainerBytes = 1 << 16;

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

// The N of step-N.
std::optional<int64_t> step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (!name.starts_with("step-")) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::string hash_of_arrays(const std::vector<Piece>& list) {
  std::string all;
  for (const Piece& piece : list) all += hash_hex(std::as_bytes(piece.bytes));
  return hash_hex(all);
}

// Of state.safetensors: its header and then every array, which are all of its bytes. The arrays are taken from memory,
// where they are before writing and after reading, so that no byte is read from the disk for it.
std::string state_hash(const fs::path& file, const std::string& arrays) {
  constexpr size_t kLengthBytes = 8;
  const MappedFile map(file);
  uint64_t header = 0;
  if (map.bytes().size() >= kLengthBytes) std::memcpy(&header, map.bytes().data(), kLengthBytes);
  const size_t begin = std::min<size_t>(map.bytes().size(), kLengthBytes + header);
  return hash_hex(hash_hex(map.bytes().first(begin)) + arrays);
}

// Checkpoints of older versions have no hashes in their marker: nothing is known of their bytes.
void check_hash(const fs::path& checkpoint, std::string_view file, const std::function<std::string()>& hash) {
  const Json json = read_json(checkpoint / kMarker, 1 << 16);
  const JsonObject marker(json, (checkpoint / kMarker).string());
  if (!marker.has(kHashes) || marker.object(kHashes).string(file) == hash()) return;
  throw InputError(
      "{}: its bytes are not those that were saved (the checksum in {} differs): the disk or a copy damaged them. "
      "Remove {}: --resume then takes the checkpoint before.",
      (checkpoint / file).string(), kMarker, checkpoint.string());
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
    // Beside the writing, which waits for the disk: hashing first would lengthen a save by a tenth.
    std::future<std::string> arrays = std::async(std::launch::async, [&list] { return hash_of_arrays(list); });
    std::vector<model::TensorSpec> specs;
    for (const Piece& piece : list) specs.push_back({piece.name, piece.dtype, piece.shape});
    model::write_safetensors(temporary / kState, specs, {{"format", "lazytrain"}},
                             [&](size_t index, const model::TensorSink& sink) { sink(list[index].bytes); });
    const std::string text = to_json(trainer).dump(2) + "\n";
    write_file(temporary / kTrainer, text);
    if (fs::exists(target)) remove_checkpoint(target);
    fs::rename(temporary, target);
    fsync_folder(folder_);
    const Json marker = {
        {std::string(kState), fs::file_size(target / kState)},
        {std::string(kTrainer), fs::file_size(target / kTrainer)},
        {std::string(kHashes),
         {{std::string(kState), state_hash(target / kState, arrays.get())}, {std::string(kTrainer), hash_hex(text)}}}};
    write_file(target / kMarker, marker.dump() + "\n");
    rotate(keep);
  } catch (const fs::filesystem_error& error) {
    throw RunError("checkpoint of step {}: {}: {}", trainer.step, error.path1().string(), error.code().message());
  }
}

std::vector<std::pair<int64_t, fs::path>> CheckpointFolder::list() const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<fs::path> CheckpointFolder::newest() const {
  const auto found = list();
  const auto taken =
      std::find_if(found.rbegin(), found.rend(), [](const auto& entry) { return complete(entry.second); });
  const std::string instead =
      taken == found.rend() ? "there is no older one" : taken->second.filename().string() + " is taken";
  for (auto it = found.rbegin(); it != taken; ++it) {
    spdlog::warn("{}: not complete ({} is missing or does not fit its files): {}", it->second.string(), kMarker,
                 instead);
  }
  if (taken == found.rend()) return std::nullopt;
  return taken->second;
}

bool CheckpointFolder::any() const {
  const auto found = list();
  return std::any_of(found.begin(), found.end(), [](const auto& entry) { return complete(entry.second); });
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
  const std::string text = read_file(file, kMaxTrainerBytes);
  check_hash(checkpoint, kTrainer, [&] { return hash_hex(text); });
  const Json json = parse_json(text, file.string());
  const JsonObject object(json, file.string());
  if (object.integer("format", 0, 1000) != kFormat) {
    throw InputError("{}: checkpoint format {}, this version reads {}", file.string(),
                     object.integer("format", 0, 1000), kFormat);
  }
  TrainerState t;
  t.step = object.integer("step", 0, INT64_MAX);
  if (const auto step = step_of(checkpoint); step && *step != t.step) {
    throw InputError("{}: \"step\" is {}, its folder is of step {}: give the folder back the name step-{}",
                     file.string(), t.step, *step, t.step);
  }
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
  const std::vector<Piece> list = pieces(state);
  for (const Piece& piece : list) {
    const model::TensorEntry* tensor = file.find(piece.name);
    if (tensor == nullptr) throw InputError("{}: tensor '{}' is missing", file.where(), piece.name);
    model::read_exact(*tensor, piece.dtype, piece.bytes);
    file.drop(*tensor);
  }
  file.check_unchanged();
  check_hash(checkpoint, kState, [&] { return state_hash(checkpoint / kState, hash_of_arrays(list)); });
  return trainer;
}

}  // namespace lazytrain::train
