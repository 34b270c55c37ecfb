#include "train/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/safetensors_writer.h"
#include "model/tensor_convert.h"
#include "optim/moments.h"
#include "train/wording.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr std::string_view kMarker = "COMPLETE";
constexpr std::string_view kState = "state.safetensors";
constexpr std::string_view kTrainer = "trainer.json";
constexpr std::string_view kHashes = "xxh3";
constexpr int64_t kMaxTrainerBytes = 1 << 16;

// One of the arrays that are saved of a parameter.
struct Array {
  int unit;
  int parameter;
  runtime::StateArray array;
  model::TensorSpec tensor;
};

// In the order of MomentLayout::arrays.
constexpr std::array<runtime::StateArray, 3> kMoments = {runtime::StateArray::kMoment1, runtime::StateArray::kMoment2,
                                                         runtime::StateArray::kScales};

optim::MomentLayout layout_of(optim::MomentFormat format, int64_t elements) {
  const optim::StateParameter parameter{elements, optim::ParameterRole::kMatrix};
  return optim::unit_moments({&parameter, 1}, {&format, 1}).parameters.front();
}

// The moments of a parameter in a format: "m" and "v", or "m8", "v8" and "scales" [blocks, 2].
std::vector<Array> moment_arrays(int unit, int parameter, const graph::Parameter& of, optim::MomentFormat format) {
  std::vector<Array> list;
  for (const optim::MomentArray& array : layout_of(format, of.elements).arrays) {
    const bool shared = array.elements != of.elements;
    list.push_back({unit,
                    parameter,
                    kMoments[list.size()],
                    {fmt::format("{}/{}", of.name, array.name), array.dtype,
                     shared ? std::vector<int64_t>{array.elements / 2, 2} : of.shape}});
  }
  return list;
}

std::vector<Array> weight_arrays(int unit, int parameter, const graph::Parameter& of) {
  return {{unit, parameter, runtime::StateArray::kHi, {of.name + "/hi", DType::kBF16, of.shape}},
          {unit, parameter, runtime::StateArray::kLo, {of.name + "/lo", DType::kI16, of.shape}}};
}

// Calls f(unit, parameter, description) for every parameter with storage of its own.
template <typename F>
void each_parameter(const graph::Graph& graph, const F& f) {
  for (size_t u = 0; u < graph.units.size(); ++u) {
    for (size_t p = 0; p < graph.units[u].params.size(); ++p) {
      const graph::Parameter& parameter = graph.units[u].params[p];
      if (!parameter.tied) f(static_cast<int>(u), static_cast<int>(p), parameter);
    }
  }
}

std::vector<Array> saved_arrays(const runtime::ModelState& state) {
  std::vector<Array> list;
  each_parameter(state.graph(), [&](int unit, int parameter, const graph::Parameter& of) {
    for (Array& array : moment_arrays(unit, parameter, of, state.format(unit, parameter))) {
      list.push_back(std::move(array));
    }
    for (Array& array : weight_arrays(unit, parameter, of)) list.push_back(std::move(array));
  });
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

std::string shown(optim::MomentFormat format) {
  if (format.kind == optim::StateKind::kFp32) return "fp32";
  return fmt::format("{}:{}", optim::name_of(format.kind), format.block);
}

// Fills a state from state.safetensors. Moments saved in another format than the state's are converted.
class StateReader {
 public:
  StateReader(const model::SafetensorsFile& file, runtime::ModelState& state, CheckpointFolder::Take take)
      : file_(file), state_(state), take_(take) {}

  // Returns the hash of the arrays.
  std::string read() {
    each_parameter(state_.graph(), [&](int unit, int parameter, const graph::Parameter& of) {
      const optim::MomentFormat saved = saved_format(of), kept = state_.format(unit, parameter);
      const std::vector<Array> moments = moment_arrays(unit, parameter, of, saved);
      if (saved.kind == optim::StateKind::k8Bit) check_scales(moments.back());
      if (take_ == CheckpointFolder::Take::kAll && saved == kept) {
        for (const Array& array : moments) copy(array);
      } else {
        for (const Array& array : moments) pass_by(array);
        if (take_ == CheckpointFolder::Take::kAll) convert(moments, saved, kept);
      }
      for (const Array& array : weight_arrays(unit, parameter, of)) copy(array);
    });
    file_.check_unchanged();
    return hash_.hex();
  }

  // What no update leaves behind, "" when there is nothing of it: to be said when the hash is right.
  const std::string& fault() const { return fault_; }

  void log_conversions(const fs::path& checkpoint) const {
    for (const auto& [formats, parameters] : conversions_) {
      spdlog::info("{}: optimizer state of {} saved as {} is converted to this run's {}", checkpoint.string(),
                   counted(parameters, "parameter"), formats.first, formats.second);
    }
  }

 private:
  static constexpr int64_t kPieceElements = int64_t{1} << 20;  // a multiple of every block

  const model::TensorEntry& find(const std::string& name) const {
    const model::TensorEntry* tensor = file_.find(name);
    if (tensor == nullptr) throw InputError("{}: tensor '{}' is missing", file_.where(), name);
    return *tensor;
  }

  std::span<const std::byte> bytes_of(const Array& a) const {
    return model::exact_bytes(find(a.tensor.name), a.tensor.dtype, model::bytes_of(a.tensor));
  }

  // Told by the arrays that are there.
  optim::MomentFormat saved_format(const graph::Parameter& of) const {
    const std::string name = of.name + "/scales";
    const model::TensorEntry* scales = file_.find(name);
    if (scales == nullptr) return {};
    const auto format = optim::format_of_scales(of.elements, scales->count);
    if (!format) {
      throw InputError("{}: tensor '{}' has {} values, which no block size gives for {} parameters", file_.where(),
                       name, scales->count, of.elements);
    }
    return *format;
  }

  void check_scales(const Array& a) {
    const std::span<const std::byte> bytes = bytes_of(a);
    std::vector<float> scales(bytes.size() / sizeof(float));
    std::memcpy(scales.data(), bytes.data(), bytes.size());
    const auto bad = optim::first_bad_scale(scales.data(), std::ssize(scales));
    if (!bad || !fault_.empty()) return;
    fault_ =
        fmt::format("{}: tensor '{}': value {} is {}, which no update leaves there; expected 0 or a positive float",
                    file_.where(), a.tensor.name, *bad, scales[static_cast<size_t>(*bad)]);
  }

  // Piece by piece, so that the bytes are hashed while they are near.
  void copy(const Array& a) {
    const std::span<const std::byte> bytes = bytes_of(a);
    const int64_t size = size_of(a.tensor.dtype), elements = std::ssize(bytes) / size;
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      const int64_t count = std::min(kPieceElements, elements - first);
      const auto piece = bytes.subspan(static_cast<size_t>(first * size), static_cast<size_t>(count * size));
      state_.write(a.unit, a.parameter, a.array, first, piece);
      hash_.add(piece);
      file_.drop(find(a.tensor.name), first, count);
    }
    hash_.end_of_array();
    file_.drop(find(a.tensor.name));
  }

  void pass_by(const Array& a) {
    hash_.add(bytes_of(a));
    hash_.end_of_array();
    if (take_ == CheckpointFolder::Take::kWeights) file_.drop(find(a.tensor.name));
  }

  void convert(const std::vector<Array>& moments, optim::MomentFormat saved, optim::MomentFormat kept) {
    const int unit = moments.front().unit, parameter = moments.front().parameter;
    const int64_t elements = state_.elements(unit, parameter, runtime::StateArray::kMoment1);
    const auto begin_of = [](size_t array, optim::MomentFormat format, int64_t first) {
      return kMoments[array] == runtime::StateArray::kScales ? 2 * first / format.block : first;
    };
    std::vector<std::byte> from, to;
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      const int64_t count = std::min(kPieceElements, elements - first);
      const optim::MomentLayout before = layout_of(saved, count), after = layout_of(kept, count);
      from.resize(static_cast<size_t>(end_of(before)));
      to.resize(static_cast<size_t>(end_of(after)));
      for (size_t i = 0; i < before.arrays.size(); ++i) {
        const optim::MomentArray& array = before.arrays[i];
        const int64_t begin = begin_of(i, saved, first) * size_of(array.dtype);
        std::memcpy(from.data() + array.offset_bytes, bytes_of(moments[i]).data() + begin,
                    static_cast<size_t>(array.bytes()));
      }
      optim::convert_moments(optim::moments_at(before, from.data()), optim::moments_at(after, to.data()), count,
                             nullptr);
      for (size_t i = 0; i < after.arrays.size(); ++i) {
        const optim::MomentArray& array = after.arrays[i];
        state_.write(
            unit, parameter, kMoments[i], begin_of(i, kept, first),
            std::span(to).subspan(static_cast<size_t>(array.offset_bytes), static_cast<size_t>(array.bytes())));
      }
    }
    ++conversions_[{shown(saved), shown(kept)}];
    for (const Array& array : moments) file_.drop(find(array.tensor.name));
  }

  static int64_t end_of(const optim::MomentLayout& layout) {
    return layout.arrays.back().offset_bytes + layout.arrays.back().bytes();
  }

  const model::SafetensorsFile& file_;
  runtime::ModelState& state_;
  CheckpointFolder::Take take_;
  ArraysHash hash_;
  std::string fault_;
  std::map<std::pair<std::string, std::string>, int64_t> conversions_;  // parameters by formats
};

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

TrainerState CheckpointFolder::load(const fs::path& checkpoint, runtime::ModelState& state, Take take) {
  TrainerState trainer = read_trainer(checkpoint);
  if (trainer.model != state.graph().fingerprint) {
    throw InputError(
        "{}: is of model {}, this run trains {}: set `output` to another folder or `model` to the run's own",
        checkpoint.string(), trainer.model, state.graph().fingerprint);
  }
  const model::SafetensorsFile file(checkpoint / kState);
  StateReader reader(file, state, take);
  const std::string arrays = reader.read();
  check_hash(checkpoint, kState, [&] { return state_hash(checkpoint / kState, arrays); });
  if (!reader.fault().empty()) throw InputError("{}", reader.fault());
  reader.log_conversions(checkpoint);
  return trainer;
}

}  // namespace lazytrain::train
