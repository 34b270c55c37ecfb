#include "runtime/cuda_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/arith.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "runtime/executor.h"
#include "runtime/instruction_uses.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kPinnedPiece = int64_t{1} << 30;

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(cuda::Runtime& runtime, int64_t bytes, int64_t zeroed_bytes)
      : runtime_(runtime), stream_(runtime.make_stream()), data_(bytes > 0 ? runtime.allocate(bytes) : nullptr) {
    if (zeroed_bytes > 0) runtime_.fill(stream_, data_, 0, zeroed_bytes);
    runtime_.synchronize(stream_);
  }
  ~CudaMemory() override {
    if (data_ != nullptr) runtime_.release(data_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* at(int64_t offset) const override { return data_ + offset; }
  void read(int64_t offset, std::span<std::byte> to) override {
    runtime_.copy(stream_, to.data(), data_ + offset, std::ssize(to), cuda::Direction::kToHost);
    runtime_.synchronize(stream_);
  }
  void write(int64_t offset, std::span<const std::byte> from) override {
    runtime_.copy(stream_, data_ + offset, from.data(), std::ssize(from), cuda::Direction::kToDevice);
    runtime_.synchronize(stream_);
  }

 private:
  cuda::Runtime& runtime_;
  cuda::Stream& stream_;
  std::byte* data_;
};

// Host memory that is pinned as long as this lives.
class Pinned {
 public:
  Pinned(cuda::Runtime& runtime, std::span<std::byte> memory) : runtime_(runtime) {
    int64_t pinned = 0;
    while (pinned < std::ssize(memory)) {
      const int64_t bytes = std::min(kPinnedPiece, std::ssize(memory) - pinned);
      const auto piece = memory.subspan(static_cast<size_t>(pinned), static_cast<size_t>(bytes));
      if (!runtime_.register_host(piece)) {
        spdlog::warn("host memory: the system pins {} of {}; copies of the rest are slower (see ulimit -l)",
                     format_bytes(pinned), format_bytes(std::ssize(memory)));
        return;
      }
      pieces_.push_back(piece);
      pinned += bytes;
    }
  }
  ~Pinned() {
    for (const auto& piece : pieces_) runtime_.unregister_host(piece);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cuda::Runtime& runtime_;
  std::vector<std::span<std::byte>> pieces_;
};

// Where what belongs to a step stands beside the plan's memory: the tokens of each micro-batch, and results.
struct StepLayout {
  StepLayout(const plan::Program& program, const graph::Graph& graph)
      : tokens(program.dims.tokens), micro_batches(program.micro_batches) {
    micro_bytes = 8 * align_up(tokens, 64);
    results = micro_bytes * micro_batches;
    int64_t parameters = 0, blocks = 0;
    for (const graph::Unit& unit : graph.units) {
      parameters += std::ssize(unit.params);
      for (const graph::Parameter& p : unit.params) {
        blocks = std::max(blocks, optim::on_cuda::sum_block_count(p.elements));
      }
    }
    sums = results + 16 * micro_batches;
    result_bytes = 16 * micro_batches + 8 * parameters;
    block_sums = align_up(results + result_bytes, 256);
    bytes = block_sums + 8 * blocks;
  }
  int64_t positions(int micro) const { return micro_bytes * micro; }
  int64_t targets(int micro) const { return positions(micro) + 4 * align_up(tokens, 64); }

  int64_t tokens;
  int micro_batches;
  int64_t micro_bytes = 0;
  int64_t results = 0;  // a loss and a count for each micro-batch, then
  int64_t sums = 0;     // a sum of squares for each parameter
  int64_t result_bytes = 0;
  int64_t block_sums = 0;  // of the sum that is being taken
  int64_t bytes = 0;
};

class CudaCalls final : public OpCalls {
 public:
  CudaCalls(const ops::CudaOps& ops, const ops::CudaContext& context) : ops_(ops), context_(context) {}
  void forward(const graph::OpKind& kind, const ops::ForwardArgs& args) const override {
    ops_.forward(context_, kind, args);
  }
  void backward(const graph::OpKind& kind, const ops::BackwardArgs& args) const override {
    ops_.backward(context_, kind, args);
  }

 private:
  const ops::CudaOps& ops_;
  const ops::CudaContext& context_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaServices& services, const graph::Graph& graph, const plan::Program& program,
             const TierMemory& memory)
      : runtime_(services.runtime),
        optim_(services.optim),
        ops_(services.ops, services.libraries),
        graph_(graph),
        program_(program),
        memory_(memory),
        layout_(program, graph),
        staging_(static_cast<size_t>(layout_.results + layout_.result_bytes)),
        pinned_staging_(runtime_, staging_),
        pinned_host_(runtime_, memory.all_of(plan::Tier::kHost)),
        step_(runtime_, layout_.bytes, 0) {
    for (const plan::Lane lane : {plan::Lane::kCompute, plan::Lane::kH2D, plan::Lane::kD2H}) {
      streams_[static_cast<size_t>(lane)] = &runtime_.make_stream();
    }
    begin_ = &runtime_.make_event();
    for (const plan::Instruction& instruction : program_.instructions) {
      const bool own = takes(instruction.lane);
      started_.push_back(own ? &runtime_.make_event() : nullptr);
      ended_.push_back(own ? &runtime_.make_event() : nullptr);
    }
    issued_.assign(program_.instructions.size(), 0);
    tokens_.resize(static_cast<size_t>(program_.micro_batches));
    int parameters = 0;
    for (const graph::Unit& unit : graph_.units) {
      first_sum_.push_back(parameters);
      parameters += static_cast<int>(unit.params.size());
    }
  }
  ~CudaDevice() override { abandon(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  bool takes(plan::Lane lane) const override {
    return lane == plan::Lane::kCompute || lane == plan::Lane::kH2D || lane == plan::Lane::kD2H;
  }

  void begin(std::span<const ops::Tokens> micro_batches, const PendingUpdate* pending,
             const PendingUpdate* early) override {
    pending_ = pending;
    early_ = early;
    std::fill(issued_.begin(), issued_.end(), char{0});
    cuda::Stream& compute = stream(plan::Lane::kCompute);
    runtime_.record(compute, *begin_);
    for (size_t m = 0; m < micro_batches.size(); ++m) stage(static_cast<int>(m), micro_batches[m]);
    const auto bytes = static_cast<int64_t>(micro_batches.size()) * layout_.micro_bytes;
    if (bytes > 0) runtime_.copy(compute, step_.at(0), staging_.data(), bytes, cuda::Direction::kToDevice);
  }

  void issue(int index, const UnitBinding& binding, std::span<std::byte> scratch) override {
    const auto i = static_cast<size_t>(index);
    const plan::Instruction& instruction = program_.instructions[i];
    cuda::Stream& own = stream(instruction.lane);
    for (const int earlier : instruction.after) {
      const plan::Lane lane = program_.instructions[static_cast<size_t>(earlier)].lane;
      if (takes(lane) && lane != instruction.lane) runtime_.wait(own, *ended_[static_cast<size_t>(earlier)]);
    }
    runtime_.record(own, *started_[i]);
    run(instruction, binding, scratch, own);
    runtime_.record(own, *ended_[i]);
    issued_[i] = 1;
  }

  void wait_for(int index) override { runtime_.synchronize(*ended_[static_cast<size_t>(index)]); }

  void end(const DeviceResults& results) override {
    cuda::Stream& compute = stream(plan::Lane::kCompute);
    std::byte* const host = staging_.data() + layout_.results;
    runtime_.copy(compute, host, step_.at(layout_.results), layout_.result_bytes, cuda::Direction::kToHost);
    for (cuda::Stream* own : streams_) {
      if (own != nullptr) runtime_.synchronize(*own);
    }
    for (size_t i = 0; i < issued_.size(); ++i) {
      if (issued_[i] == 0) continue;
      results.spans[i] = {static_cast<int>(i), runtime_.seconds_between(*begin_, *started_[i]),
                          runtime_.seconds_between(*begin_, *ended_[i])};
      take_results(program_.instructions[i], reinterpret_cast<const double*>(host), results);
    }
  }

  void abandon() noexcept override {
    for (cuda::Stream* own : streams_) {
      try {
        if (own != nullptr) runtime_.synchronize(*own);
      } catch (...) {  // the step's own error is on its way
      }
    }
  }

 private:
  cuda::Stream& stream(plan::Lane lane) const { return *streams_[static_cast<size_t>(lane)]; }
  const plan::Buffer& buffer(const plan::Use& use) const { return program_.buffers[static_cast<size_t>(use.buffer)]; }
  std::byte* address(const plan::Use& use) const { return memory_.at(buffer(use).tier, buffer(use).offset); }

  void stage(int m, const ops::Tokens& tokens) {
    const auto put = [&](std::span<const int32_t> from, int64_t offset) {
      std::memcpy(staging_.data() + offset, from.data(), from.size_bytes());
    };
    put(tokens.positions, layout_.positions(m));
    put(tokens.targets, layout_.targets(m));
    const auto at = [&](int64_t offset) { return reinterpret_cast<const int32_t*>(step_.at(offset)); };
    tokens_[static_cast<size_t>(m)] = {
        .host = tokens, .positions = at(layout_.positions(m)), .targets = at(layout_.targets(m))};
  }

  double* loss_at(int micro) const { return reinterpret_cast<double*>(step_.at(layout_.results)) + 2 * micro; }
  double* sum_at(int unit, size_t parameter) const {
    return reinterpret_cast<double*>(step_.at(layout_.sums)) + first_sum_[static_cast<size_t>(unit)] + parameter;
  }
  double* block_sums() const { return reinterpret_cast<double*>(step_.at(layout_.block_sums)); }

  void run(const plan::Instruction& instruction, const UnitBinding& binding, std::span<std::byte> scratch,
           cuda::Stream& own) {
    switch (instruction.action) {
      case plan::Action::kCompute:
        return compute(instruction, binding, scratch, own);
      case plan::Action::kCopyIn:
        return copy_in(instruction, own);
      case plan::Action::kCopyOut:
      case plan::Action::kFetch:
        return move(instruction, own);
      case plan::Action::kAccumulate:
        return accumulate(instruction, own);
      case plan::Action::kUpdate:
        return update(instruction, own);
      case plan::Action::kDiskRead:
      case plan::Action::kDiskWrite:
        break;
    }
    throw std::logic_error("a disk transfer on a lane of the device");
  }

  void compute(const plan::Instruction& instruction, const UnitBinding& binding, std::span<std::byte> scratch,
               cuda::Stream& own) {
    const ops::DeviceTokens& tokens = tokens_[static_cast<size_t>(instruction.micro)];
    const ops::CudaContext context{
        .stream = own, .tokens = tokens, .scratch = scratch, .loss = loss_at(instruction.micro)};
    run_steps(graph_.units[static_cast<size_t>(instruction.unit)],
              program_.layouts[static_cast<size_t>(instruction.layout)], instruction.first_step, instruction.last_step,
              binding, program_.compute, tokens.host.count, CudaCalls(ops_, context));
  }

  // The bf16 halves of a unit's weights, as one copy.
  void copy_in(const plan::Instruction& instruction, cuda::Stream& own) {
    const int64_t elements = graph_.units[static_cast<size_t>(instruction.unit)].block_elements;
    runtime_.copy(own, address(*use_of(instruction, plan::Role::kOutput)),
                  address(*use_of(instruction, plan::Role::kWeights)), 2 * elements, cuda::Direction::kToDevice);
  }

  // Gradients are rounded to the type of their store where they stand, and then leave.
  void move(const plan::Instruction& instruction, cuda::Stream& own) {
    const plan::Use& source = *use_of(instruction, plan::Role::kSource);
    const plan::Use& target = *use_of(instruction, plan::Role::kTarget);
    int64_t bytes = std::min(buffer(source).bytes, buffer(target).bytes);
    if (rounds_gradient(program_, buffer(source), buffer(target))) {
      const int64_t elements = graph_.units[static_cast<size_t>(instruction.unit)].block_elements;
      optim_.round_to_bf16_in_place(own, reinterpret_cast<float*>(address(source)), elements);
      bytes = 2 * elements;
    }
    runtime_.copy(own, address(target), address(source), bytes,
                  instruction.action == plan::Action::kFetch ? cuda::Direction::kToDevice : cuda::Direction::kToHost);
  }

  // Of a unit whose state lives on the device.
  void accumulate(const plan::Instruction& instruction, cuda::Stream& own) {
    const graph::Unit& unit = graph_.units[static_cast<size_t>(instruction.unit)];
    const auto* sum = reinterpret_cast<const float*>(address(*use_of(instruction, plan::Role::kWeightGradient)));
    auto* store = reinterpret_cast<bf16*>(address(*use_of(instruction, plan::Role::kGradientStore)));
    for (size_t p = 0; p < unit.params.size(); ++p) {
      const graph::Parameter& parameter = unit.params[p];
      if (parameter.tied) continue;
      optim_.round_to_bf16_and_sum(own, sum + parameter.offset, store + parameter.offset, parameter.elements,
                                   block_sums(), sum_at(instruction.unit, p));
    }
  }

  void update(const plan::Instruction& instruction, cuda::Stream& lane) {
    const auto u = static_cast<size_t>(instruction.unit), k = static_cast<size_t>(instruction.piece);
    const plan::StatePiece& piece = program_.state[u][k];
    const PendingUpdate* own = piece.early ? early_ : pending_;
    if (own == nullptr) return;
    const auto at = [&](const plan::StatePlace& place) { return memory_.at(place.tier, place.offset); };
    const plan::PieceMoments moments =
        plan::moments_of_piece(graph_.units[u], program_.moments[u], piece.first, piece.elements);
    for (const plan::ParameterMoments& part : moments.parameters) {
      const graph::Parameter& parameter = graph_.units[u].params[static_cast<size_t>(part.parameter)];
      const auto step = optim::adamw_step(own->options, own->lr, own->number, own->gradient_scale, parameter.decays());
      const int64_t begin = parameter.offset + part.first - piece.first, n = part.layout.elements;
      auto* hi = reinterpret_cast<bf16*>(at(piece.hi)) + begin;
      auto* lo = reinterpret_cast<int16_t*>(at(piece.lo)) + begin;
      const optim::on_cuda::Gradient gradient{reinterpret_cast<bf16*>(at(piece.gradient)) + begin, DType::kBF16};
      const optim::Moments where = optim::moments_at(part.layout, at(piece.optimizer));
      if (const auto* plain = std::get_if<optim::Moments32>(&where)) {
        optim_.adamw_update(lane, optim::adamw_constants(step), {hi, lo, plain->m, plain->v}, gradient, n);
      } else {
        optim_.adamw8_update(lane, optim::adamw8_constants(step), hi, lo, std::get<optim::Moments8>(where), gradient,
                             n);
      }
    }
  }

  void take_results(const plan::Instruction& instruction, const double* results, const DeviceResults& to) const {
    if (instruction.action == plan::Action::kCompute && instruction.pass == plan::Pass::kLoss) {
      const auto m = static_cast<size_t>(instruction.micro);
      to.losses[m] = {results[2 * m], static_cast<int64_t>(results[2 * m + 1])};
    }
    if (instruction.action != plan::Action::kAccumulate) return;
    const auto u = static_cast<size_t>(instruction.unit);
    const double* sums = results + 2 * layout_.micro_batches + first_sum_[u];
    for (size_t p = 0; p < to.sums[u].size(); ++p) {
      if (!graph_.units[u].params[p].tied) to.sums[u][p] = {sums[p], std::isfinite(sums[p])};
    }
  }

  cuda::Runtime& runtime_;
  const optim::CudaKernels& optim_;
  ops::CudaOps ops_;
  const graph::Graph& graph_;
  const plan::Program& program_;
  const TierMemory& memory_;
  StepLayout layout_;
  std::vector<std::byte> staging_;  // of tokens on their way in and results on their way out
  Pinned pinned_staging_, pinned_host_;
  CudaMemory step_;
  std::array<cuda::Stream*, plan::kLanes> streams_{};
  cuda::Event* begin_ = nullptr;
  std::vector<cuda::Event*> started_, ended_;  // by instruction; null: not the device's
  std::vector<char> issued_;                   // by instruction, in this step; each written by the thread of its lane
  std::vector<ops::DeviceTokens> tokens_;      // by micro-batch
  std::vector<int> first_sum_;                 // by unit: where its parameters' sums begin
  const PendingUpdate* pending_ = nullptr;
  const PendingUpdate* early_ = nullptr;
};

void require_runnable(const graph::Graph& graph, const plan::Program& program) {
  if (program.one_memory) {
    throw UsageError("the plan '{}' is for a machine whose device and host are one memory; plan for this card",
                     program.policy.name);
  }
  if (program.compute != DType::kBF16) {
    throw UsageError("compute: fp32 is not available on CUDA; use compute: bf16, or device: cpu");
  }
  for (const graph::Unit& unit : graph.units) {
    if (unit.kind == graph::UnitKind::kEmbedding) continue;  // on the host
    for (const graph::Op& op : unit.ops) {
      if (!ops::CudaOps::runs(*op.kind)) {
        throw UsageError("'{}' of {} has no kernel for CUDA; train this model with device: cpu", op.kind->name(),
                         unit.name);
      }
    }
  }
}

}  // namespace

std::unique_ptr<DeviceMemory> make_cuda_memory(cuda::Runtime& runtime, int64_t bytes, int64_t zeroed_bytes) {
  return std::make_unique<CudaMemory>(runtime, bytes, zeroed_bytes);
}

int64_t device_state_bytes(const plan::Program& program) {
  int64_t bytes = 0;
  for (const plan::Buffer& buffer : program.buffers) {
    if (buffer.state && buffer.tier == plan::Tier::kDevice) bytes = std::max(bytes, buffer.offset + buffer.bytes);
  }
  return bytes;
}

int64_t cuda_step_bytes(const plan::Program& program, const graph::Graph& graph) {
  return StepLayout(program, graph).bytes;
}

std::unique_ptr<Device> make_cuda_device(const CudaServices& services, const graph::Graph& graph,
                                         const plan::Program& program, const TierMemory& memory) {
  require_runnable(graph, program);
  return std::make_unique<CudaDevice>(services, graph, program, memory);
}

}  // namespace lazytrain::runtime
