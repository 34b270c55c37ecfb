#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace lazytrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMergeGrain = 1 << 16;  // elements a part of a merge at least

}  // namespace

// The lane threads. A step is a generation: lanes start when it rises and each instruction's `ended` follows it.
struct Executor::Lanes {
  explicit Lanes(Executor& executor) : owner(executor), ended(executor.program_.instructions.size(), 0) {
    for (size_t i = 0; i < owner.program_.instructions.size(); ++i) {
      queue[static_cast<size_t>(owner.program_.instructions[i].lane)].push_back(static_cast<int>(i));
    }
    for (int lane = 0; lane < plan::kLanes; ++lane) {
      if (!queue[static_cast<size_t>(lane)].empty()) threads.emplace_back([this, lane] { work(lane); });
    }
  }

  ~Lanes() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (auto& thread : threads) thread.join();
  }

  // Runs all instructions, or only those of `only`, and returns when every lane is through.
  void run(const plan::Action* only) {
    std::unique_lock lock(mutex);
    filter = only;
    error = nullptr;
    idle = 0;
    start = Clock::now();
    ++generation;
    changed.notify_all();
    changed.wait(lock, [&] { return idle == threads.size(); });
    if (error) std::rethrow_exception(error);
  }

  void work(int lane) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || generation > seen; });
      if (stopping) return;
      seen = generation;
      for (const int index : queue[static_cast<size_t>(lane)]) {
        const plan::Instruction& instruction = owner.program_.instructions[static_cast<size_t>(index)];
        const auto ready = [&] {
          return error || std::all_of(instruction.after.begin(), instruction.after.end(),
                                      [&](int earlier) { return ended[static_cast<size_t>(earlier)] == seen; });
        };
        changed.wait(lock, ready);
        if (!error && (filter == nullptr || *filter == instruction.action)) run_one(index, lock);
        ended[static_cast<size_t>(index)] = seen;
        changed.notify_all();
      }
      ++idle;
      changed.notify_all();
    }
  }

  void run_one(int index, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const auto since = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    plan::Span span{index, since(), 0};
    std::exception_ptr failure;
    try {
      owner.execute(index);
    } catch (...) {
      failure = std::current_exception();
    }
    span.end_s = since();
    lock.lock();
    owner.spans_[static_cast<size_t>(index)] = span;
    if (failure && !error) error = failure;
  }

  Executor& owner;
  std::array<std::vector<int>, plan::kLanes> queue;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread> threads;
  std::vector<uint64_t> ended;  // by instruction, the generation in which it last ended
  uint64_t generation = 0;
  size_t idle = 0;  // lanes that are through with this generation
  bool stopping = false;
  const plan::Action* filter = nullptr;
  std::exception_ptr error;
  Clock::time_point start;
};

int64_t Executor::scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int threads) {
  const auto* op = dynamic_cast<const ops::CpuOp*>(&kind);
  return op == nullptr ? 0 : op->cpu_scratch_bytes(dims, threads);
}

Executor::Executor(const graph::Graph& graph, plan::Program program, ModelState& state, ThreadPool& pool)
    : graph_(graph),
      program_(std::move(program)),
      state_(state),
      pool_(pool),
      device_(program_.tier_bytes[static_cast<size_t>(plan::Tier::kDevice)], "activations") {
  require_cpu_kernels(graph_);
  if (!program_.one_memory) throw std::logic_error("the program is for a machine of several memories");
  if (program_.tier_bytes[static_cast<size_t>(plan::Tier::kHost)] != state.bytes()) {
    throw std::logic_error("the program's state layout is not the model state's");
  }
  losses_.resize(static_cast<size_t>(program_.micro_batches));
  for (const graph::Unit& unit : graph_.units) sums_.emplace_back(unit.params.size());
  spans_.resize(program_.instructions.size());
  for (const plan::Instruction& instruction : program_.instructions) {
    UnitBinding binding;
    std::span<std::byte> scratch;
    if (instruction.action == plan::Action::kCompute) {
      const graph::Unit& unit = graph_.units[static_cast<size_t>(instruction.unit)];
      binding.params.resize(unit.params.size());
      binding.param_grads.resize(unit.params.size());
      binding.add_param_grads.assign(unit.params.size(), instruction.micro > 0);
      for (const plan::Use& use : instruction.uses) {
        std::byte* at = address(use);
        const plan::Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
        const DType weight_dtype = buffer.purpose == plan::Purpose::kStreamedWeights ? DType::kF32 : DType::kBF16;
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
            scratch = {at, static_cast<size_t>(buffer.bytes)};
            break;
          case plan::Role::kWeights:
          case plan::Role::kTiedWeights:
          case plan::Role::kWeightGradient:
          case plan::Role::kTiedGradient:
            for (size_t p = 0; p < unit.params.size(); ++p) {
              const graph::Parameter& parameter = unit.params[p];
              const bool of_tied = use.role == plan::Role::kTiedWeights || use.role == plan::Role::kTiedGradient;
              if (parameter.tied != of_tied) continue;
              const int64_t offset = of_tied ? 0 : parameter.offset;
              if (use.role == plan::Role::kWeights || use.role == plan::Role::kTiedWeights) {
                binding.params[p] = parameter_view(parameter, at + offset * size_of(weight_dtype), weight_dtype);
              } else {
                binding.param_grads[p] = parameter_view(parameter, at + offset * 4, DType::kF32);
              }
            }
            break;
          case plan::Role::kOptimizer:
          case plan::Role::kGradientStore:
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
  lanes_ = std::make_unique<Lanes>(*this);
}

Executor::~Executor() = default;

std::byte* Executor::address(const plan::Use& use) const {
  const plan::Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
  return buffer.state ? state_.base() + buffer.offset : device_.at(buffer.offset);
}

StepResult Executor::run_step(std::span<const ops::Tokens> micro_batches, const PendingUpdate* update) {
  if (static_cast<int>(micro_batches.size()) != program_.micro_batches) {
    throw std::logic_error("the step has another number of micro-batches than its program");
  }
  for (const ops::Tokens& tokens : micro_batches) {
    if (tokens.count > program_.dims.tokens) throw std::logic_error("a micro-batch is larger than planned");
  }
  micro_batches_ = micro_batches;
  pending_ = update;
  lanes_->run(nullptr);

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
  result.timeline.spans = spans_;
  for (const plan::Span& span : spans_) result.timeline.step_s = std::max(result.timeline.step_s, span.end_s);
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

void Executor::finish_update(const PendingUpdate& update) {
  pending_ = &update;
  constexpr plan::Action kOnly = plan::Action::kUpdate;
  lanes_->run(&kOnly);
}

void Executor::execute(int index) {
  const plan::Instruction& instruction = program_.instructions[static_cast<size_t>(index)];
  switch (instruction.action) {
    case plan::Action::kCompute:
      compute(instruction);
      break;
    case plan::Action::kCopyIn:
      copy_in(instruction);
      break;
    case plan::Action::kAccumulate:
      accumulate(instruction);
      break;
    case plan::Action::kUpdate:
      update(instruction);
      break;
    case plan::Action::kCopyOut:
    case plan::Action::kFetch:
    case plan::Action::kDiskRead:
    case plan::Action::kDiskWrite:
      throw std::logic_error("a program of one memory moves nothing between tiers");
  }
}

void Executor::compute(const plan::Instruction& instruction) {
  const auto index = static_cast<size_t>(&instruction - program_.instructions.data());
  const auto micro = static_cast<size_t>(instruction.micro);
  const ops::CpuContext context{.pool = &pool_,
                                .activation = program_.compute,
                                .tokens = &micro_batches_[micro],
                                .scratch = scratch_[index],
                                .loss = &losses_[micro]};
  run_steps(graph_.units[static_cast<size_t>(instruction.unit)],
            program_.layouts[static_cast<size_t>(instruction.layout)], instruction.first_step, instruction.last_step,
            bindings_[index], context, &lane_profile_[static_cast<size_t>(instruction.lane)]);
}

// Both halves of the master weights into one fp32 copy (compute: fp32).
void Executor::copy_in(const plan::Instruction& instruction) {
  const auto* hi = reinterpret_cast<const bf16*>(address(instruction.uses[0]));
  const int64_t elements = graph_.units[static_cast<size_t>(instruction.unit)].block_elements;
  const auto* lo = reinterpret_cast<const int16_t*>(hi + elements);
  auto* out = reinterpret_cast<float*>(address(instruction.uses[1]));
  pool_.parallel_for(elements, kMergeGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = merge_master({hi[i], lo[i]});
  });
}

// Stores a unit's gradient for the update and takes its sum of squares on the way.
void Executor::accumulate(const plan::Instruction& instruction) {
  const auto u = static_cast<size_t>(instruction.unit);
  const graph::Unit& unit = graph_.units[u];
  const auto* block = reinterpret_cast<const float*>(address(instruction.uses[0]));
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    if (parameter.tied) continue;
    const float* from = block + parameter.offset;
    std::byte* to = state_.gradient(instruction.unit, static_cast<int>(p));
    if (state_.gradient_dtype() == DType::kBF16) {
      sums_[u][p] = optim::round_to_bf16_and_sum(from, reinterpret_cast<bf16*>(to), parameter.elements, &pool_);
    } else {
      std::copy_n(from, parameter.elements, reinterpret_cast<float*>(to));
      sums_[u][p] = optim::sum_of_squares(from, parameter.elements, &pool_);
    }
  }
}

void Executor::update(const plan::Instruction& instruction) {
  if (pending_ == nullptr) return;
  const graph::Unit& unit = graph_.units[static_cast<size_t>(instruction.unit)];
  for (size_t p = 0; p < unit.params.size(); ++p) {
    const graph::Parameter& parameter = unit.params[p];
    if (parameter.tied) continue;
    const auto step = optim::adamw_step(pending_->options, pending_->lr, pending_->number, pending_->gradient_scale,
                                        parameter.decays());
    const auto arrays = state_.arrays(instruction.unit, static_cast<int>(p));
    const std::byte* gradient = state_.gradient(instruction.unit, static_cast<int>(p));
    if (state_.gradient_dtype() == DType::kBF16) {
      optim::adamw_update(step, arrays, reinterpret_cast<const bf16*>(gradient), parameter.elements, &pool_);
    } else {
      optim::adamw_update(step, arrays, reinterpret_cast<const float*>(gradient), parameter.elements, &pool_);
    }
  }
}

}  // namespace lazytrain::runtime
