#include "train/metrics.h"

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "train/tensorboard.h"

namespace lazytrain::train {
namespace {

// JSON has no infinity or NaN.
Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// The lines of steps up to `last`; a torn last line is dropped.
std::string lines_up_to(const std::string& text, int64_t last) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    try {
      const Json json = parse_json(line, "metrics.jsonl");
      if (JsonObject(json, "metrics.jsonl").integer("step", 0, INT64_MAX) > last) break;
    } catch (const InputError&) {
      break;
    }
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

Json to_json(const StepMetrics& m) {
  Json json = {
      {"step", m.step},
      {"loss", finite_or_null(m.loss)},
      {"grad_norm", finite_or_null(m.grad_norm)},
      {"lr", m.lr},
      {"tokens", m.tokens},
      {"tok_per_s", m.tok_per_s},
      {"step_s", m.step_s},
      {"exposed_s", m.exposed_s},
      {"peak_bytes", {{"device", m.peak_device_bytes}, {"host", m.peak_host_bytes}, {"disk", m.peak_disk_bytes}}}};
  Json lanes = Json::object();
  for (size_t lane = 0; lane < m.busy_s.size(); ++lane) {
    if (m.busy_s[lane] > 0) lanes[std::string(plan::kLaneNames[lane])] = {{"busy_s", m.busy_s[lane]}};
  }
  json["lanes"] = std::move(lanes);
  json["predicted"] = {{"step_s", m.predicted_step_s}, {"exposed_s", m.predicted_exposed_s}};
  if (m.skipped) json["skipped"] = true;
  if (m.eval_loss) json["eval_loss"] = finite_or_null(*m.eval_loss);
  if (m.replan.is_object()) json["replan"] = m.replan;
  return json;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, int64_t resume_step, bool tensorboard,
                             AppendFile::Tell tell) {
  const auto path = folder / "metrics.jsonl";
  std::string kept;
  if (resume_step > 0 && std::filesystem::exists(path))
    kept = lines_up_to(read_file(path, int64_t{1} << 34), resume_step);
  write_file(path, kept);
  lines_ = std::make_unique<AppendFile>(path, tell);
  if (tensorboard) tensorboard_ = std::make_unique<TensorBoardWriter>(folder / "tensorboard", tell);
}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const StepMetrics& metrics) {
  lines_->append(to_json(metrics).dump() + "\n");
  if (!tensorboard_) return;
  tensorboard_->scalar("train/loss", metrics.step, metrics.loss);
  tensorboard_->scalar("train/grad_norm", metrics.step, metrics.grad_norm);
  tensorboard_->scalar("train/lr", metrics.step, metrics.lr);
  tensorboard_->scalar("speed/tok_per_s", metrics.step, metrics.tok_per_s);
  if (metrics.eval_loss) tensorboard_->scalar("eval/loss", metrics.step, *metrics.eval_loss);
}

}  // namespace lazytrain::train
