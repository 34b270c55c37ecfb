#include "train/export.h"

#include <array>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "model/safetensors_writer.h"
#include "model/tensor_convert.h"

namespace lazytrain::train {
namespace {

// What belongs to a model besides configuration and weights.
constexpr std::array<std::string_view, 9> kCompanions = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "generation_config.json",  "README.md"};

void copy_companions(const std::filesystem::path& source, const std::filesystem::path& target) {
  for (const std::string_view name : kCompanions) {
    if (!std::filesystem::exists(source / name)) continue;
    write_file(target / name, read_file(source / name, int64_t{1} << 30));
  }
}

}  // namespace

void export_model(const model::ModelConfig& config, const runtime::ModelState& state,
                  const std::filesystem::path& source, const std::filesystem::path& target, DType dtype) {
  struct Place {
    int unit;
    int parameter;
  };
  std::vector<model::TensorSpec> specs;
  std::vector<Place> places;
  const auto& units = state.graph().units;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].params.size(); ++p) {
      if (units[u].params[p].tied) continue;
      specs.push_back({units[u].params[p].name, dtype, units[u].params[p].shape});
      places.push_back({static_cast<int>(u), static_cast<int>(p)});
    }
  }
  try {
    std::filesystem::create_directories(target);
    model::write_model_weights(target, specs, [&](size_t index, const model::TensorSink& sink) {
      const Place place = places[index];
      if (dtype == DType::kBF16) return state.visit(place.unit, place.parameter, runtime::StateArray::kHi, sink);
      state.visit_weights(place.unit, place.parameter,
                          [&](int64_t, std::span<const bf16> hi, std::span<const int16_t> lo) {
                            model::emit_master(hi, lo, dtype, sink);
                          });
    });
    write_file(target / "config.json", model::saved_config(config, dtype).dump(2) + "\n");
    if (!std::filesystem::equivalent(source, target)) copy_companions(source, target);
  } catch (const std::filesystem::filesystem_error& error) {
    throw RunError("{}: the model cannot be written: {}: {}", target.string(), error.path1().string(),
                   error.code().message());
  }
}

}  // namespace lazytrain::train
