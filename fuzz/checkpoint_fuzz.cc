// Edits of a saved checkpoint: loading either refuses it with an InputError or fills the state.
// An input is a byte that chooses the file, the formats of the moments on both sides and whether the marker has hashes
// (without, the bytes themselves are met), then edits of that file.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/family.h"
#include "train/checkpoint.h"

namespace {

namespace fs = std::filesystem;
using namespace lazytrain;

// The embedding is just large enough for 8-bit moments.
graph::Graph tiny_graph() {
  const Json config = {{"model_type", "qwen2"},      {"hidden_size", 8},         {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},   {"num_key_value_heads", 1}, {"intermediate_size", 8},
                       {"vocab_size", 512},          {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 64},
                       {"tie_word_embeddings", true}};
  return model::build_graph(model::parse_config(config, "fuzz"));
}

constexpr std::array<const char*, 3> kFiles = {"state.safetensors", "trainer.json", "COMPLETE"};
constexpr std::array<const char*, 2> kStates = {"fp32", "8bit+embedding"};

struct Checkpoint {
  std::array<std::string, kFiles.size()> files;
  std::string marker_without_hashes;
};

// What all inputs start from: a checkpoint of every kind of state, in a folder in memory where there is one.
struct Fixture {
  fs::path folder;
  graph::Graph graph = tiny_graph();
  std::array<std::unique_ptr<runtime::ModelState>, kStates.size()> states;
  std::array<Checkpoint, kStates.size()> saved;

  Fixture() {
    spdlog::set_level(spdlog::level::off);
    std::error_code none;
    const fs::path memory = "/dev/shm";
    folder = (fs::is_directory(memory, none) ? memory : fs::temp_directory_path()) /
             ("checkpoint_fuzz." + std::to_string(::getpid()));
    for (size_t kind = 0; kind < kStates.size(); ++kind) {
      states[kind] = std::make_unique<runtime::ModelState>(graph, DType::kBF16, kStates[kind]);
      states[kind]->initialize(kind, nullptr);
      save(kind);
      for (size_t f = 0; f < kFiles.size(); ++f) saved[kind].files[f] = read_file(step() / kFiles[f], 1 << 20);
      Json marker = parse_json(saved[kind].files[2], "marker");
      marker.erase("xxh3");
      saved[kind].marker_without_hashes = marker.dump();
    }
  }
  ~Fixture() {
    std::error_code none;
    fs::remove_all(folder, none);
  }
  fs::path step() const { return folder / "step-3"; }
  void save(size_t kind) const {
    const train::TrainerState at{
        .step = 3, .updates = 3, .tokens = 30, .guard = {}, .model = graph.fingerprint, .numbers = "n"};
    fs::remove_all(folder);
    train::CheckpointFolder(folder).save(at, *states[kind], 1);
  }
};

// An edit: offset (3 bytes), how many bytes go, how many come, and these.
std::string edited(std::string text, std::span<const uint8_t> edits) {
  while (edits.size() >= 5) {
    const size_t offset = (edits[0] | edits[1] << 8 | edits[2] << 16) % (text.size() + 1);
    const size_t gone = std::min<size_t>(edits[3], text.size() - offset);
    const size_t come = std::min<size_t>(edits[4], edits.size() - 5);
    const auto* bytes = reinterpret_cast<const char*>(edits.data()) + 5;
    text.replace(offset, gone, bytes, come);
    edits = edits.subspan(5 + come);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Fixture fixture;
  if (size == 0) return 0;
  const size_t file = data[0] % kFiles.size(), from = data[0] >> 2 & 1, to = data[0] >> 3 & 1;
  const bool hashes = (data[0] >> 4 & 3) == 3;
  const auto take =
      (data[0] >> 6 & 1) != 0 ? train::CheckpointFolder::Take::kWeights : train::CheckpointFolder::Take::kAll;

  std::array<std::string, kFiles.size()> files = fixture.saved[from].files;
  if (!hashes) files[2] = fixture.saved[from].marker_without_hashes;
  files[file] = edited(files[file], {data + 1, size - 1});
  for (size_t f = 0; f < kFiles.size(); ++f) write_file(fixture.step() / kFiles[f], files[f]);
  try {
    static_cast<void>(train::CheckpointFolder(fixture.folder).newest());
    train::CheckpointFolder::load(fixture.step(), *fixture.states[to], take);
  } catch (const InputError&) {
  }
  return 0;
}
