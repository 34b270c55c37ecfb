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

// One of the four arrays that are saved of a parameter.
struct Array {
  int unit;
  int parameter;
  runtime::StateArray array;
  model::TensorSpec tensor;
};

std::vector<Array> saved_arrays(const runtime::ModelState& state) {
  using enum runtime::StateArray;
  std::vector<Array> list;
  const auto& units = state.graph().units;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].params.size(); ++p) {
      const graph::Parameter& parameter = units[u].params[p];
      if (parameter.tied) continue;
      const auto add = [&](std::string_view what, DType dtype, runtime::StateArray array) {
        list.push_back({static_cast<int>(u),
                        static_cast<int>(p),
                        array,
                        {fmt::format("{}/{}", parameter.name, what), dtype, parameter.shape}});
      };
      add("m", DType::kF32, kMoment1);
      add("v", DType::kF32, kMoment2);
      add("hi", DType::kBF16, kHi);
      add("lo", DType::kI16, kLo);
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

// Of all arrays, each of which comes piece by piece.
class ArraysHash {
 public:
  void add(std::span<const std::byte> bytes) { hasher_.update(bytes); }
  void end_of_array() {
    all_ += hasher_.hex();
    hasher_ = Hasher();
  }
  std::string hex() const { return hash_hex(all_); }

 private:
  Hasher hasher_;
  std::string all_;
};

std::string hash_of_arrays(const runtime::ModelState& state, const std::vector<Array>& list) {
  ArraysHash hash;
  for (const Array& a : list) {
    state.visit(a.unit, a.parameter, a.array, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
    hash.end_of_array();
  }
  return hash.hex();
}

// Writes state.safetensors and returns the hash of its arrays.
std::string write_state(const fs::path& file, const runtime::ModelState& state) {
  const std::vector<Array> list = saved_arrays(state);
  std::vector<model::TensorSpec> specs;
  for (const Array& a : list) specs.push_back(a.tensor);
  // Of memory beside the writing, which waits for the disk: hashing first would lengthen a save by a tenth. What lies
  // on disk is hashed as it passes by, so that it is read once.
  std::future<std::string> beside;
  if (state.in_memory()) beside = std::async(std::launch::async, [&] { return hash_of_arrays(state, list); });
  ArraysHash hash;
  model::write_safetensors(file, specs, {{"format", "lazytrain"}}, [&](size_t index, const model::TensorSink& sink) {
    const Array& a = list[index];
    state.visit(a.unit, a.parameter, a.array, [&](std::span<const std::byte> bytes) {
      if (!beside.valid()) hash.add(bytes);
      sink(bytes);
    });
    hash.end_of_array();
  });
  return beside.valid() ? beside.get() : hash.hex();
}

// Fills the state from state.safetensors and returns the hash of its arrays. Piece by piece, so that the bytes are
// hashed while they are near.
std::string read_state(const model::SafetensorsFile& file, runtime::ModelState& state) {
  constexpr int64_t kPieceElements = int64_t{1} << 20;
  ArraysHash hash;
  for (const Array& a : saved_arrays(state)) {
    const model::TensorEntry* tensor = file.find(a.tensor.name);
    if (tensor == nullptr) throw InputError("{}: tensor '{}' is missing", file.where(), a.tensor.name);
    const auto bytes = model::exact_bytes(*tensor, a.tensor.dtype, model::bytes_of(a.tensor));
    const int64_t size = size_of(a.tensor.dtype);
    for (int64_t first = 0; first < tensor->count; first += kPieceElements) {
      const int64_t count = std::min(kPieceElements, tensor->count - first);
      const auto piece = bytes.subspan(static_cast<size_t>(first * size), static_cast<size_t>(count * size));
      state.write(a.unit, a.parameter, a.array, first, piece);
      hash.add(piece);
      file.drop(*tensor, first, count);
    }
    hash.end_of_array();
    file.drop(*tensor);
  }
  file.check_unchanged();
  return hash.hex();
}

// Of state.safetensors: its header and then every array, which are all of its bytes. The arrays' is made while they are
// written or read, so that no byte is read from the disk for it.
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
    const std::string arrays = write_state(temporary / kState, state);
    const std::string text = to_json(trainer).dump(2) + "\n";
    write_file(temporary / kTrainer, text);
    if (fs::exists(target)) remove_checkpoint(target);
    fs::rename(temporary, target);
    fsync_folder(folder_);
    const Json marker = {
        {std::string(kState), fs::file_size(target / kState)},
        {std::string(kTrainer), fs::file_size(target / kTrainer)},
        {std::string(kHashes),
         {{std::string(kState), state_hash(target / kState, arrays)}, {std::string(kTrainer), hash_hex(text)}}}};
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
  const std::string arrays = read_state(file, state);
  check_hash(checkpoint, kState, [&] { return state_hash(checkpoint / kState, arrays); });
  return trainer;
}

}  // namespace lazytrain::train
