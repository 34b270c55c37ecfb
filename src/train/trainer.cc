#include "train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "model/family.h"
#include "model/parameter_tensors.h"
#include "optim/grad_norm.h"
#include "optim/step_guard.h"
#include "plan/describe.h"
#include "plan/trace.h"
#include "runtime/finite_weights.h"
#include "runtime/forward_loss.h"
#include "runtime/master_weights.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/engine.h"
#include "train/export.h"
#include "train/metrics.h"
#include "train/output_folder.h"
#include "train/plan_file.h"
#include "train/planning.h"
#include "train/progress.h"
#include "train/replanner.h"
#include "train/signals.h"
#include "train/step_times.h"
#include "train/summary.h"
#include "train/wording.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;
constexpr const char* kConfigFile = "config.yaml";
constexpr const char* kPlanFile = "plan.json";

// What a run starts from.
struct Beginning {
  std::optional<fs::path> checkpoint;         // of the same run
  std::optional<model::ModelFolder> weights;  // where there is none
  std::optional<RunConfig> before;            // what config.yaml said
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const model::ModelConfig& model, const graph::Graph& graph, const Workers& workers,
          ThreadPool& pool, PlannedRun planned, Beginning beginning)
      : config_(config),
        beginning_(std::move(beginning)),
        model_(model),
        graph_(graph),
        pool_(pool),
        machine_(planned.machine),
        data_(config, config.data.train, config.data.pack, config.data.shuffle, graph, pool),
        total_steps_(steps_of(config, data_.rows())),
        engine_(graph, workers, pool, std::move(planned)),
        replanner_(config, graph, engine_, pool.threads()),
        checkpoints_(config.output / "checkpoints") {
    take_prediction();
    report_data(config.data.train, data_);
    if (!config.data.eval.empty()) {
      eval_data_.emplace(config, config.data.eval, false, false, graph, pool);
      report_data(config.data.eval, *eval_data_);
    }
  }

  // Weights from the checkpoint to go on from, or from the model folder.
  void start() {
    const std::string numbers = hash_of_run();
    if (beginning_.checkpoint) {
      trainer_ = CheckpointFolder::load(*beginning_.checkpoint, engine_.state());
      result_.checkpoint = *beginning_.checkpoint;
      guard_ = optim::StepGuard(trainer_.guard);
      if (trainer_.numbers != numbers) {
        warn_of_changes(numbers);
        trainer_.numbers = numbers;
      }
      spdlog::info("going on from {} (step {} of {})", beginning_.checkpoint->string(), trainer_.step, total_steps_);
    } else {
      engine_.state().load_weights(*beginning_.weights, &pool_);
      trainer_.model = graph_.fingerprint;
      trainer_.numbers = numbers;
    }
    first_step_ = trainer_.step + 1;
  }

  TrainResult run(SignalScope& signals) {
    const bool was_finished = trainer_.step >= total_steps_;
    Progress progress(trainer_.step, total_steps_, config_.log_every, machine_.gemm_flops);
    MetricsWriter metrics(config_.output, trainer_.step, config_.tensorboard, [&progress](const std::string& trouble) {
      progress.pause();
      spdlog::error("{}", trouble);
    });
    signals.stepping();
    bool stopped = false;
    while (trainer_.step < total_steps_ && !stopped) {
      StepMetrics line = step();
      stopped = signals.stop_requested();
      const bool last = trainer_.step == total_steps_;
      if (eval_data_ && (last || due(config_.eval_every))) line.eval_loss = evaluate();
      if (!last && !stopped) consider_plan(line, progress);
      metrics.write(line);
      progress.step(line);
      result_.loss = line.loss;
      if (line.eval_loss) result_.eval_loss = line.eval_loss;
      if (!last && !stopped && due(config_.save_every)) save_and_go_on(progress);
    }
    progress.pause();
    replanner_.stop();
    if (trainer_.step >= total_steps_) signals.ending();
    finish_update();
    save_at_the_end();
    result_.steps = trainer_.step;
    result_.total_steps = total_steps_;
    result_.skipped = trainer_.guard.skipped;
    if (timeline_) {
      write_or_say("the trace",
                   [&] { plan::write_trace(engine_.program(), graph_, *timeline_, config_.output / "trace.json"); });
    }
    write_measurements();
    if (stopped && trainer_.step < total_steps_) {
      spdlog::info("stopped after step {} of {}, checkpoint saved: go on with --resume", trainer_.step, total_steps_);
      result_.exit_code = kInterrupted;
      return result_;
    }
    result_.model = config_.output / "model";
    export_model(model_, engine_.state(), config_.model, result_.model, DType::kBF16);
    if (was_finished) {
      say("nothing was left to do: the run was finished already, with step {}\nmodel: {}\n", trainer_.step,
          result_.model.string());
    } else {
      const RunSummary summary{.program = engine_.program(),
                               .profile = engine_.profile(),
                               .machine = machine_,
                               .predicted = engine_.planned().predicted,
                               .times = times_,
                               .peak_bytes = timeline_->peak_bytes,
                               .process_bytes = engine_.planned().budgets.besides(),
                               .skipped = trainer_.guard.skipped,
                               .model = result_.model};
      print_summary(summary);
      write_or_say("the summary",
                   [&] { write_file(config_.output / "summary.json", to_json(summary).dump(2) + "\n"); });
    }
    return result_;
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
    spdlog::info("{}: {} in {}, {} ({} of them learnt), rows {:.0f}% full", file.string(),
                 counted(counts.samples, "sample"), counted(data.rows(), "row"), counted(counts.tokens, "token"),
                 counts.targets, 100 * data.fill());
    if (counts.truncated > 0) {
      spdlog::warn("{}: longer than seq, so that the right end is lost: {}", file.string(),
                   counted(counts.truncated, "sample"));
    }
    if (counts.dropped > 0) {
      spdlog::warn("{}: nothing to learn in it, so that it is dropped: {}", file.string(),
                   counted(counts.dropped, "sample"));
    }
  }

  bool due(int64_t every) const { return every > 0 && trainer_.step % every == 0; }

  // What of the configuration and the data is not what the checkpoint was made with, key by key where it is known.
  void warn_of_changes(const std::string& numbers) const {
    std::vector<std::string> changes;
    if (beginning_.before) changes = changed_keys(*beginning_.before, config_);
    const size_t data_begin = numbers.size() - data_.fingerprint().size();
    if (trainer_.numbers.substr(std::min(data_begin, trainer_.numbers.size())) != numbers.substr(data_begin)) {
      changes.push_back(fmt::format("the tokens of data.train, {} (its content, the tokenizer or the template)",
                                    config_.data.train.string()));
    }
    if (changes.empty()) changes.push_back("keys that config.yaml no longer tells");
    spdlog::warn(
        "{}: configuration or data differ from those of the checkpoint: the run goes on, but not as it would have: {}",
        beginning_.checkpoint->string(), fmt::join(changes, "; "));
  }

  std::string hash_of_run() const { return numeric_fingerprint(config_) + data_.fingerprint(); }

  StepMetrics step() {
    const auto begin = Clock::now();
    const int64_t number = trainer_.step + 1;
    const StepBatch batch = data_.step(number, config_.batch, config_.micro_batch);
    const std::vector<ops::Tokens> views = batch.views();
    runtime::StepResult result = engine_.executor().run_step(views, pending_ ? &*pending_ : nullptr);
    had_update_ = pending_.has_value();
    pending_.reset();
    const double loss = result.loss.nll / static_cast<double>(result.loss.count);
    if (number == first_step_ && !std::isfinite(loss)) refuse_broken_weights();

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
    const plan::LaneSummary lanes = plan::summarize(engine_.program(), result.timeline);
    times_.add(seconds, lanes);
    timeline_ = std::move(result.timeline);
    return {.step = number,
            .loss = loss,
            .grad_norm = norm,
            .lr = lr,
            .tokens = batch.tokens,
            .tok_per_s = static_cast<double>(batch.tokens) / seconds,
            .flops = needed_flops(batch.tokens, result.loss.count),
            .step_s = seconds,
            .exposed_s = lanes.exposed_s,
            .busy_s = lanes.busy_s,
            .peak_device_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kDevice)],
            .peak_host_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kHost)],
            .peak_disk_bytes = timeline_->peak_bytes[static_cast<size_t>(plan::Tier::kDisk)],
            .skipped = !apply,
            .eval_loss = {},
            .predicted_step_s = engine_.planned().predicted.step_s,
            .predicted_exposed_s = predicted_exposed_s_,
            .replan = nullptr};
  }

  // 6 a weight and token; the head computes for learnt tokens alone.
  double needed_flops(int64_t tokens, int64_t learnt) const {
    int64_t head = 0;
    for (const graph::Parameter& parameter : graph_.units.back().params) {
      if (parameter.shape.size() == 2) head += parameter.elements;
    }
    const int64_t body = graph_.matmul_parameters() - head;
    return 6 * (static_cast<double>(body) * static_cast<double>(tokens) +
                static_cast<double>(head) * static_cast<double>(learnt));
  }

  // A loss that is not finite from the first step on may come from weights that are not: no rate mends those.
  void refuse_broken_weights() const {
    const auto broken = runtime::find_not_finite(engine_.state());
    if (!broken) return;
    if (beginning_.checkpoint) {
      throw InputError("{}: {}, so the loss is not either: remove this checkpoint and --resume from an older one",
                       (*beginning_.checkpoint / "state.safetensors").string(), broken->describe());
    }
    throw InputError("{}: {}, so the loss is not either: get the model again, or take one that was saved before",
                     model::tensor_of(*broken->parameter, *beginning_.weights).file->where(), broken->describe());
  }

  // Plans again where steps are not what was predicted; what is done stands in the line and in the log.
  void consider_plan(StepMetrics& line, Progress& progress) {
    const auto event = replanner_.after_step(*timeline_, had_update_, [this] { finish_update(); });
    if (!event) return;
    progress.pause();
    spdlog::info("step {}: {}", line.step, event->words);
    line.replan = event->metrics;
    if (!event->changed) return;
    say(plan::describe(engine_.program(), graph_, engine_.planned().predicted, machine_, engine_.planned().budgets));
    times_.plan_changed();
    take_prediction();
    try {
      write_file(config_.output / kPlanFile, plan_file_text(engine_.program(), model_, machine_));
    } catch (const RunError& error) {
      spdlog::error("{}; the run goes on, and its plan.json is that of the plan before", error.what());
    }
  }

  void take_prediction() {
    const plan::Timeline& predicted = engine_.planned().predicted;
    result_.policy = engine_.program().policy.name;
    result_.predicted_step_s = predicted.step_s;
    predicted_exposed_s_ = plan::summarize(engine_.program(), predicted).exposed_s;
  }

  // For `plan --measured`.
  void write_measurements() {
    if (replanner_.measurements().steps() == 0) return;
    try {
      write_file(config_.output / "measured.json", to_json(replanner_.measurements()).dump(2) + "\n");
    } catch (const RunError& error) {
      spdlog::error("{}; the run goes on without it", error.what());
    }
  }

  // Weights outside the executor are read only after the update that belongs to them.
  void finish_update() {
    if (!pending_) return;
    engine_.executor().finish_update(*pending_);
    pending_.reset();
  }

  double evaluate() {
    finish_update();
    const int64_t rows = std::min(config_.micro_batch, eval_data_->rows());
    const graph::Dims dims{rows * config_.seq, config_.seq, size_of(config_.compute)};
    runtime::ForwardLoss forward(graph_, dims, config_.compute, pool_);
    runtime::MasterWeights weights(engine_.state(), config_.compute, pool_);
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

  void save() {
    checkpoints_.save(trainer_, engine_.state(), config_.save_keep);
    result_.checkpoint = config_.output / "checkpoints" / fmt::format("step-{}", trainer_.step);
  }

  std::string last_checkpoint() const {
    return result_.checkpoint.empty() ? "" : result_.checkpoint.filename().string();
  }

  // A full disk in the middle of a run costs a checkpoint, not the run.
  void save_and_go_on(Progress& progress) {
    finish_update();
    try {
      save();
    } catch (const RunError& error) {
      progress.pause();
      const std::string last = last_checkpoint();
      spdlog::error("{}; the run goes on, {}", error.what(),
                    last.empty() ? "without a checkpoint so far" : last + " stays");
    }
  }

  void save_at_the_end() {
    try {
      save();
    } catch (const RunError& error) {
      const std::string last = last_checkpoint();
      throw RunError("{}; free space and add --resume: it goes on from {}", error.what(),
                     last.empty() ? "the beginning, since nothing has been saved" : last);
    }
  }

  static void write_or_say(std::string_view what, const std::function<void()>& write) {
    try {
      write();
    } catch (const RunError& error) {
      spdlog::error("{}; the run goes on without {}", error.what(), what);
    }
  }

  TrainResult result_;
  const RunConfig& config_;
  Beginning beginning_;
  const model::ModelConfig& model_;
  const graph::Graph& graph_;
  ThreadPool& pool_;
  hw::Profile machine_;
  DataSource data_;
  std::optional<DataSource> eval_data_;
  int64_t total_steps_;
  Engine engine_;
  Replanner replanner_;
  CheckpointFolder checkpoints_;
  TrainerState trainer_;
  int64_t first_step_ = 1;  // of this process
  optim::StepGuard guard_;
  std::optional<runtime::PendingUpdate> pending_;
  std::optional<plan::Timeline> timeline_;  // of the last step
  bool had_update_ = false;                 // the last step
  double predicted_exposed_s_ = 0;
  StepTimes times_;
};

// The run's own configuration of last time; none when nobody can read it any more.
std::optional<RunConfig> configuration_before(const fs::path& file) {
  try {
    if (fs::exists(file)) return read_run_config(file);
  } catch (const UsageError& error) {
    spdlog::warn("{}", error.what());
  }
  return std::nullopt;
}

// Finds it, and looks at everything else that the run will read, before time is spent on measuring and planning.
Beginning find_beginning(const RunConfig& config, const graph::Graph& graph, bool resume) {
  check_sources(config);
  Beginning beginning;
  if (resume) {
    beginning.checkpoint = CheckpointFolder(config.output / "checkpoints").newest();
    beginning.before = configuration_before(config.output / kConfigFile);
    if (!beginning.checkpoint) {
      spdlog::info("{} has no complete checkpoint: starting from the beginning",
                   (config.output / "checkpoints").string());
    }
  }
  if (!beginning.checkpoint) {
    beginning.weights.emplace(config.model);
    for (const graph::Unit& unit : graph.units) {
      for (const graph::Parameter& parameter : unit.params) {
        if (!parameter.tied) model::tensor_of(parameter, *beginning.weights);
      }
    }
  }
  return beginning;
}

}  // namespace

TrainResult run_training(const RunConfig& config, const TrainOptions& options) {
  SignalScope signals;
  const model::ModelConfig model = model::load_config(config.model);
  const graph::Graph graph = model::build_graph(model);
  runtime::require_cpu_kernels(graph);
  if (config.seq > graph.max_positions) {
    throw UsageError("seq: {} is more than the {} positions of {} (max_position_embeddings)", config.seq,
                     graph.max_positions, config.model.string());
  }
  check_output(config);
  std::optional<OutputFolder> output;
  if (!options.dry_run) output.emplace(config);
  if (!options.dry_run && !options.resume) require_fresh(config.output);
  Beginning beginning = find_beginning(config, graph, options.resume);
  const Workers workers = workers_of(config);
  ThreadPool pool(workers.compute);
  PlannedRun planned = plan_run(config, graph, pool, options.dry_run);
  say(describe(planned, graph));
  if (options.dry_run) {
    TrainResult result;
    result.policy = planned.program.policy.name;
    result.predicted_step_s = planned.predicted.step_s;
    return result;
  }

  const std::string plan = plan_file_text(planned.program, model, planned.machine);
  Trainer trainer(config, model, graph, workers, pool, std::move(planned), std::move(beginning));
  trainer.start();
  output->keep();
  write_file(config.output / kConfigFile, to_yaml(config));
  write_file(config.output / kPlanFile, plan);
  TrainResult result = trainer.run(signals);
  if (result.exit_code == 0) signals.finished();
  return result;
}

}  // namespace lazytrain::train
