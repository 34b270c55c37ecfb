#include "runtime/executor.h"

#include <algorithm>
#include <stdexcept>

namespace lazytrain::runtime {

int64_t Executor::scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int threads) {
  const auto* op = dynamic_cast<const ops::CpuOp*>(&kind);
  return op == nullptr ? 0 : op->cpu_scratch_bytes(dims, threads);
}

Executor::Executor(const graph::Graph& graph, plan::Program program, TierMemory& memory, ThreadPool& pool,
                   const ExecutorOptions& options)
    : graph_(graph),
      program_(std::move(program)),
      memory_(memory),
      pool_(pool),
      host_pool_(options.host_pool == nullptr ? pool : *options.host_pool) {
  require_cpu_kernels(graph_);
  for (size_t tier = 0; tier < program_.tier_bytes.size(); ++tier) {
    if (memory.bytes(static_cast<plan::Tier>(tier)) < program_.tier_bytes[tier]) {
      throw std::logic_error("the program's tiers are larger than the memory it is given");
    }
  }
  if (options.rates != nullptr) {
    throttle_ = std::make_unique<Throttle>(*options.rates);
    host_seconds_ = options.rates->host_seconds;
    if (!host_seconds_.empty() && host_seconds_.size() != program_.instructions.size()) {
      throw std::logic_error("seconds of the host lane are of another program");
    }
  }
  if (memory.has_disk()) {
    disk_read_ = &memory.disk(DiskUser::kReadLane);
    disk_write_ = &memory.disk(DiskUser::kWriteLane);
  }
  losses_.resize(static_cast<size_t>(program_.micro_batches));
  for (const graph::Unit& unit : graph_.units) sums_.emplace_back(unit.params.size());
  for (size_t u = 0; u < program_.state.size(); ++u) {
    moments_.emplace_back();
    for (const plan::StatePiece& piece : program_.state[u]) {
      moments_.back().push_back(
          plan::moments_of_piece(graph_.units[u], program_.moments[u], piece.first, piece.elements));
    }
  }
  for (const plan::Instruction& instruction : program_.instructions) bind(instruction);
  if (options.device) device_ = options.device(graph_, program_, memory_);
  lanes_ = std::make_unique<Lanes>(
      program_, [this](int index) { execute(index); }, options.cores);
}

Executor::~Executor() = default;

std::byte* Executor::address(const plan::Use& use) const { return memory_.at(buffer(use).tier, buffer(use).offset); }

ThreadPool& Executor::pool_of(plan::Lane lane) const { return lane == plan::Lane::kHost ? host_pool_ : pool_; }

// Where the buffers of a compute instruction lie: looked up once, before any step.
void Executor::bind(const plan::Instruction& instruction) {
  UnitBinding binding;
  std::span<std::byte> scratch;
  if (instruction.action == plan::Action::kCompute) {
    const graph::Unit& unit = graph_.units[static_cast<size_t>(instruction.unit)];
    binding.params.resize(unit.params.size());
    binding.param_grads.resize(unit.params.size());
    binding.add_param_grads.assign(unit.params.size(), instruction.micro > 0);
    for (const plan::Use& use : instruction.uses) {
      std::byte* at = address(use);
      switch (use.role) {
        case plan::Role::kInput:
          binding.input = at;
          break;
        case plan::Role::kOutput:
          binding.output = at;
          break;
        case plan::Role::kGradient:
          binding.gradient = at;
          break;
        case plan::Role::kRetained:
          binding.retained = at;
          break;
        case plan::Role::kWorkspace:
          binding.workspace = at;
          break;
        case plan::Role::kScratch:
          scratch = {at, static_cast<size_t>(buffer(use).bytes)};
          break;
        case plan::Role::kWeights:
        case plan::Role::kTiedWeights:
        case plan::Role::kWeightGradient:
        case plan::Role::kTiedGradient:
          bind_parameters(instruction, use, binding);
          break;
        case plan::Role::kOptimizer:
        case plan::Role::kGradientStore:
        case plan::Role::kStaged:
        case plan::Role::kSource:
        case plan::Role::kTarget:
          break;
      }
    }
    // The head has already written the tied matrix's gradient when the embedding adds its rows.
    if (graph_.tied && unit.kind == graph::UnitKind::kEmbedding) binding.add_param_grads[0] = true;
  }
  bindings_.push_back(std::move(binding));
  scratch_.push_back(scratch);
}

void Executor::bind_parameters(const plan::Instruction& instruction, const plan::Use& use, UnitBinding& binding) const {
  const graph::Unit& unit = graph_.units[static_cast<size_t>(instruction.unit)];
  const bool of_tied = use.role == plan::Role::kTiedWeights || use.role == plan::Role::kTiedGradient;
  const bool weights = use.role == plan::Role::kWeights || use.role == plan::Role::kTiedWeights;
  std::byte* at = address(use);
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    if (parameter.tied != of_tied) continue;
    const int64_t offset = of_tied ? 0 : parameter.offset;
    if (weights) {
      binding.params[p] = parameter_view(parameter, at + offset * size_of(program_.compute), program_.compute);
    } else {
      binding.param_grads[p] = parameter_view(parameter, at + offset * 4, DType::kF32);
    }
  }
}

StepResult Executor::run_step(std::span<const ops::Tokens> micro_batches, const PendingUpdate* update,
                              const PendingUpdate* early) {
  if (static_cast<int>(micro_batches.size()) != program_.micro_batches) {
    throw std::logic_error("the step has another number of micro-batches than its program");
  }
  for (const ops::Tokens& tokens : micro_batches) {
    if (tokens.count > program_.dims.tokens) throw std::logic_error("a micro-batch is larger than planned");
  }
  if (program_.policy.update_in_backward != (early != nullptr)) {
    throw std::logic_error("a step's own update belongs to a program that updates in backward, and to no other");
  }
  micro_batches_ = micro_batches;
  pending_ = update;
  early_ = early;
  const std::vector<plan::Span>& spans = run_lanes({});

  StepResult result;
  for (const ops::LossSum& loss : losses_) {
    result.loss.nll += loss.nll;
    result.loss.count += loss.count;
  }
  for (size_t u = 0; u < sums_.size(); ++u) {
    for (size_t p = 0; p < sums_[u].size(); ++p) {
      if (!graph_.units[u].params[p].tied) {
        result.gradients.push_back({static_cast<int>(u), static_cast<int>(p), sums_[u][p]});
      }
    }
  }
  result.timeline.spans = spans;
  for (const plan::Span& span : spans) result.timeline.step_s = std::max(result.timeline.step_s, span.end_s);
  result.timeline.peak_bytes = program_.tier_bytes;
  for (OpProfile& lane : lane_profile_) {
    for (const auto& [name, time] : lane) {
      OpTime& total = profile_[name];
      total.seconds += time.seconds;
      total.flops += time.flops;
      total.calls += time.calls;
    }
    lane.clear();
  }
  return result;
}

// The update alone, with what it reads and writes on disk.
void Executor::finish_update(const PendingUpdate& update) {
  micro_batches_ = {};
  pending_ = &update;
  early_ = nullptr;
  run_lanes([this](int index) { return belongs_to_update(program_.instructions[static_cast<size_t>(index)]); });
}

const std::vector<plan::Span>& Executor::run_lanes(const std::function<bool(int)>& takes) {
  if (device_ == nullptr) return lanes_->run(takes);
  device_->begin(micro_batches_, pending_, early_);
  try {
    spans_ = lanes_->run(takes);
  } catch (...) {
    device_->abandon();
    throw;
  }
  device_->end({losses_, sums_, spans_});
  return spans_;
}

bool Executor::is_early(const plan::Instruction& instruction) const {
  return program_.state[static_cast<size_t>(instruction.unit)][static_cast<size_t>(instruction.piece)].early;
}

const PendingUpdate* Executor::update_of(const plan::Instruction& instruction) const {
  return is_early(instruction) ? early_ : pending_;
}

// To the one that finish_update does: what backward did is done.
bool Executor::belongs_to_update(const plan::Instruction& instruction) const {
  if (instruction.action == plan::Action::kUpdate) return !is_early(instruction);
  return std::any_of(instruction.uses.begin(), instruction.uses.end(),
                     [&](const plan::Use& use) { return buffer(use).purpose == plan::Purpose::kStaged; });
}

// No faster than the emulated machine's host. Without an update there is nothing to pace.
void Executor::held(int index, const std::function<void()>& work) {
  const plan::Instruction& instruction = program_.instructions[static_cast<size_t>(index)];
  const bool paced = throttle_ && !host_seconds_.empty() && instruction.lane == plan::Lane::kHost &&
                     !(instruction.action == plan::Action::kUpdate && update_of(instruction) == nullptr);
  if (!paced) return work();
  throttle_->hold(instruction.lane, host_seconds_[static_cast<size_t>(index)], work);
}

void Executor::execute(int index) {
  const plan::Instruction& instruction = program_.instructions[static_cast<size_t>(index)];
  if (device_ != nullptr) {
    if (device_->takes(instruction.lane)) {
      return device_->issue(index, bindings_[static_cast<size_t>(index)], scratch_[static_cast<size_t>(index)]);
    }
    for (const int earlier : instruction.after) {
      if (device_->takes(program_.instructions[static_cast<size_t>(earlier)].lane)) device_->wait_for(earlier);
    }
  }
  switch (instruction.action) {
    case plan::Action::kCompute:
      return compute(instruction);
    case plan::Action::kCopyIn:
      return copy_in(instruction);
    case plan::Action::kAccumulate:
      return held(index, [&] { accumulate(instruction); });
    case plan::Action::kUpdate:
      return held(index, [&] { update(instruction); });
    case plan::Action::kCopyOut:
    case plan::Action::kFetch:
      return move(instruction);
    case plan::Action::kDiskRead:
    case plan::Action::kDiskWrite:
      return disk_transfer(instruction);
  }
}

void Executor::compute(const plan::Instruction& instruction) {
  const auto index = static_cast<size_t>(&instruction - program_.instructions.data());
  const auto micro = static_cast<size_t>(instruction.micro);
  const ops::CpuContext context{.pool = &pool_of(instruction.lane),
                                .activation = program_.compute,
                                .tokens = &micro_batches_[micro],
                                .scratch = scratch_[index],
                                .loss = &losses_[micro]};
  run_steps(graph_.units[static_cast<size_t>(instruction.unit)],
            program_.layouts[static_cast<size_t>(instruction.layout)], instruction.first_step, instruction.last_step,
            bindings_[index], context, &lane_profile_[static_cast<size_t>(instruction.lane)]);
}

}  // namespace lazytrain::runtime
