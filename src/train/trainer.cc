#include "train/trainer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "model/family.h"
#include "optim/grad_norm.h"
#include "optim/step_guard.h"
#include "plan/trace.h"
#include "runtime/executor.h"
#include "runtime/forward_loss.h"
#include "runtime/master_weights.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/export.h"
#include "train/metrics.h"
#include "train/planning.h"
#include "train/progress.h"
#include "train/signals.h"
#include "train/summary.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;

// A fresh run must not overwrite what an earlier one left.
void require_fresh(const fs::path& output) {
  if (CheckpointFolder(output / "checkpoints").newest() || fs::exists(output / "model")) {
    throw UsageError("output: {} holds a run already: add --resume to go on with it, or name another folder",
                     output.string());
  }
}

class Trainer {
 public:
  Trainer(const RunConfig& config, const model::ModelConfig& model, const graph::Graph& graph, ThreadPool& pool,
          PlannedRun planned)
      : config_(config),
        model_(model),
        graph_(graph),
        pool_(pool),
        machine_(planned.machine),
        predicted_(std::move(planned.predicted)),
        data_(config, config.data.train, config.data.pack, config.data.shuffle, graph, pool),
        total_steps_(steps_of(config, data_.rows())),
        state_(graph, config.compute),
        executor_(graph, std::move(planned.program), state_, pool),
        checkpoints_(config.output / "checkpoints") {
    report_data(config.data.train, data_);
    if (!config.data.eval.empty()) {
      eval_data_.emplace(config, config.data.eval, false, false, graph, pool);
      report_data(config.data.eval, *eval_data_);
    }
  }

  int run(bool resume) {
    const int64_t resumed = start(resume);
    const SignalScope signals;
    MetricsWriter metrics(config_.output, resumed, config_.tensorboard);
    Progress progress(resumed, total_steps_, config_.log_every, 6.0 * static_cast<double>(graph_.matmul_parameters()),
                      machine_.gemm_flops);
    bool stopped = false;
    while (trainer_.step < total_steps_ && !stopped) {
      StepMetrics line = step();
      stopped = signals.stop_requested();
      const bool last = trainer_.step == total_steps_;
      if (eval_data_ && (last || due(config_.eval_every))) line.eval_loss = evaluate();
      metrics.write(line);
      progress.step(line);
      if (!last && !stopped && due(config_.save_every)) save_and_go_on(progress);
    }
    progress.pause();
    finish_update();
    checkpoints_.save(trainer_, state_, config_.save_keep);
    if (timeline_) plan::write_trace(executor_.program(), graph_, *timeline_, config_.output / "trace.json");
    if (stopped && trainer_.step < total_steps_) {
      spdlog::info("stopped after step {} of {}, checkpoint saved: go on with --resume", trainer_.step, total_steps_);
      return kInterrupted;
    }
    export_model(model_, state_, config_.model, config_.output / "model", DType::kBF16);
    print_summary({.program = executor_.program(),
                   .profile = executor_.profile(),
                   .machine = machine_,
                   .predicted = predicted_,
                   .step_seconds = step_seconds_,
                   .exposed_seconds = exposed_seconds_,
                   .skipped = trainer_.guard.skipped,
                   .model = config_.output / "model"});
    return 0;
  }

 private:
  static int64_t steps_of(const RunConfig& config, int64_t rows) {
    if (config.steps > 0) return config.steps;
    const double epochs = config.epochs > 0 ? config.epochs : 1;
    return std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(epochs * static_cast<double>(rows) / static_cast<double>(config.batch))));
  }

  static void report_data(const fs::path& file, const DataSource& data) {
    const text::SampleCounts& counts = data.counts();
    spdlog::info("{}: {} samples in {} rows, {} tokens ({} of them learnt), rows {:.0f}% full", file.string(),
                 counts.samples, data.rows(), counts.tokens, counts.targets, 100 * data.fill());
    if (counts.truncated > 0)
      spdlog::warn("{}: {} samples were longer than seq and lost their right end", file.string(), counts.truncated);
    if (counts.dropped > 0)
      spdlog::warn("{}: {} samples had nothing to learn and were dropped", file.string(), counts.dropped);
  }

  bool due(int64_t every) const { return every > 0 && trainer_.step % every == 0; }

  // Weights from the newest checkpoint, or from the model folder. Returns the step that is done already.
  int64_t start(bool resume) {
    const std::string numbers = hash_of_run();
    if (resume) {
      if (const auto newest = checkpoints_.newest()) {
        trainer_ = CheckpointFolder::load(*newest, state_);
        guard_ = optim::StepGuard(trainer_.guard);
        if (trainer_.numbers != numbers) {
          spdlog::warn(
              "{}: configuration or data differ from those of the checkpoint: the run goes on, but not as it would "
              "have",
              newest->string());
          trainer_.numbers = numbers;
        }
        spdlog::info("going on from {} (step {} of {})", newest->string(), trainer_.step, total_steps_);
        return trainer_.step;
      }
      spdlog::info("{} has no complete checkpoint: starting from the beginning",
                   (config_.output / "checkpoints").string());
    }
    state_.load_weights(model::ModelFolder(config_.model), &pool_);
    trainer_.model = graph_.fingerprint;
    trainer_.numbers = numbers;
    return 0;
  }

  std::string hash_of_run() const { return numeric_fingerprint(config_) + data_.fingerprint(); }

  StepMetrics step() {
    const auto begin = Clock::now();
    const int64_t number = trainer_.step + 1;
    const StepBatch batch = data_.step(number, config_.batch, config_.micro_batch);
    const std::vector<ops::Tokens> views = batch.views();
    runtime::StepResult result = executor_.run_step(views, pending_ ? &*pending_ : nullptr);
    pending_.reset();

    for (const runtime::ParameterGradient& gradient : result.gradients) {
      const auto& unit = graph_.units[static_cast<size_t>(gradient.unit)];
      guard_.observe(gradient.sum, unit.params[static_cast<size_t>(gradient.parameter)].name);
    }
    const double norm = guard_.sum().norm();
    const bool apply = guard_.admit(number);
    const double lr = optim::lr_at(config_.optimizer.schedule, number - 1, total_steps_);
    if (apply) {
      ++trainer_.updates;
      pending_ = runtime::PendingUpdate{config_.optimizer.adamw, lr, trainer_.updates,
                                        optim::clip_factor(norm, config_.optimizer.clip)};
    } else {
      spdlog::warn("step {}: the gradient of {} is not finite, the update is skipped", number, guard_.culprit());
    }
    trainer_.step = number;
    trainer_.guard = guard_.counts();
    trainer_.tokens += batch.tokens;

    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double exposed = plan::summarize(executor_.program(), result.timeline).exposed_s;
    step_seconds_.push_back(seconds);
    exposed_seconds_.push_back(exposed);
    timeline_ = std::move(result.timeline);
    return {.step = number,
            .loss = result.loss.nll / static_cast<double>(result.loss.count),
            .grad_norm = norm,
            .lr = lr,
            .tokens = batch.tokens,
            .tok_per_s = static_cast<double>(batch.tokens) / seconds,
            .step_s = seconds,
            .exposed_s = exposed,
            .peak_device_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kDevice)],
            .peak_host_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kHost)],
            .peak_disk_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kDisk)],
            .skipped = !apply,
            .eval_loss = {}};
  }

  // Weights outside the executor are read only after the update that belongs to them.
  void finish_update() {
    if (!pending_) return;
    executor_.finish_update(*pending_);
    pending_.reset();
  }

  double evaluate() {
    finish_update();
    const int64_t rows = std::min(config_.micro_batch, eval_data_->rows());
    const graph::Dims dims{rows * config_.seq, config_.seq, size_of(config_.compute)};
    runtime::ForwardLoss forward(graph_, dims, config_.compute, pool_);
    runtime::MasterWeights weights(state_, config_.compute, pool_);
    ops::LossSum total;
    for (int64_t begin = 0; begin < eval_data_->rows(); begin += rows) {
      const int64_t count = std::min(rows, eval_data_->rows() - begin);
      const StepBatch batch = eval_data_->rows_at(begin, count);
      for (const ops::Tokens& tokens : batch.views()) {
        const ops::LossSum sum =
            forward.run(tokens, [&](int unit, int parameter) { return weights.view(unit, parameter); });
        total.nll += sum.nll;
        total.count += sum.count;
      }
    }
    return total.nll / static_cast<double>(total.count);
  }

  // A full disk in the middle of a run costs a checkpoint, not the run.
  void save_and_go_on(Progress& progress) {
    finish_update();
    try {
      checkpoints_.save(trainer_, state_, config_.save_keep);
    } catch (const RunError& error) {
      progress.pause();
      spdlog::error("{}; the run goes on, the checkpoint before stays", error.what());
    }
  }

  const RunConfig& config_;
  const model::ModelConfig& model_;
  const graph::Graph& graph_;
  ThreadPool& pool_;
  hw::Profile machine_;
  plan::Timeline predicted_;
  DataSource data_;
  std::optional<DataSource> eval_data_;
  int64_t total_steps_;
  runtime::ModelState state_;
  runtime::Executor executor_;
  CheckpointFolder checkpoints_;
  TrainerState trainer_;
  optim::StepGuard guard_;
  std::optional<runtime::PendingUpdate> pending_;
  std::optional<plan::Timeline> timeline_;  // of the last step
  std::vector<double> step_seconds_, exposed_seconds_;
};

}  // namespace

int run_training(const RunConfig& config, const TrainOptions& options) {
  const model::ModelConfig model = model::load_config(config.model);
  const graph::Graph graph = model::build_graph(model);
  runtime::require_cpu_kernels(graph);
  if (config.seq > graph.max_positions) {
    throw UsageError("seq: {} is more than the {} positions of {} (max_position_embeddings)", config.seq,
                     graph.max_positions, config.model.string());
  }
  if (!options.dry_run && !options.resume) require_fresh(config.output);
  ThreadPool pool(threads_of(config));
  PlannedRun planned = plan_run(config, graph, pool);
  fmt::print(stderr, "{}", describe(planned, graph));
  if (options.dry_run) return 0;
  try {
    fs::create_directories(config.output);
  } catch (const fs::filesystem_error& error) {
    throw UsageError("output: {}", error.what());
  }
  write_file(config.output / "config.yaml", to_yaml(config));
  Json plan_json = plan::to_json(planned.program.policy);
  plan_json["compute"] = config.compute == DType::kF32 ? "fp32" : "bf16";
  plan_json["profile"] = hw::to_json(planned.machine);
  plan_json["model_config"] = model.raw;
  write_file(config.output / "plan.json", plan_json.dump(2) + "\n");
  return Trainer(config, model, graph, pool, std::move(planned)).run(options.resume);
}

}  // namespace lazytrain::train
