#include "runtime/op_timing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "base/arith.h"
#include "base/median.h"
#include "base/rng.h"
#include "graph/pass.h"
#include "runtime/arena.h"
#include "runtime/probe_timing.h"
#include "runtime/unit_runner.h"

namespace lazytrain::runtime {
namespace {

constexpr int kRounds = 3;
constexpr double kEnoughSeconds = 10;  // of a unit: then what was timed so far is taken
constexpr int64_t kLine = 64;

// Of an op in a direction, by its declared work.
using Key = std::tuple<std::string, bool, double, double>;
using Times = std::map<Key, std::vector<double>>;

// Rows of whole documents, with ids from all of the vocabulary.
struct Rows {
  std::vector<int32_t> ids, positions, doc_starts = {0};

  Rows(const graph::Dims& dims, int64_t vocabulary) {
    const CounterRng rng(1, 2);
    const int64_t context = std::max<int64_t>(1, std::min(dims.context, dims.tokens));
    for (int64_t t = 0; t < dims.tokens; ++t) {
      ids.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(t), static_cast<uint64_t>(vocabulary))));
      positions.push_back(static_cast<int32_t>(t % context));
      if (t > 0 && t % context == 0) doc_starts.push_back(static_cast<int32_t>(t));
    }
    doc_starts.push_back(static_cast<int32_t>(dims.tokens));
  }
  ops::Tokens tokens() const {
    return {static_cast<int64_t>(ids.size()), ids, positions, ids, doc_starts, 1 / static_cast<double>(ids.size())};
  }
};

// A unit with all that a pass of it touches, in one arena: first counted, then laid out.
class Bench {
 public:
  Bench(const graph::Unit& unit, const graph::Dims& dims, DType compute, ThreadPool& pool)
      : unit_(unit),
        dims_(dims),
        compute_(compute),
        pool_(pool),
        pass_(unit.kind == graph::UnitKind::kHead ? graph::loss_pass(unit, dims)
                                                  : graph::backward_pass(unit, {}, dims, true)),
        forward_(graph::forward_pass(unit, {}, dims)),
        arena_(lay_out(nullptr), "timing the ops of " + unit.name) {
    std::memset(arena_.at(0), 0x3c, static_cast<size_t>(arena_.bytes()));  // 0.0115, as bf16 and as fp32
    lay_out(&arena_);
  }

  // All of the unit's forward and backward: the backward of a layer runs its forward again, the head's loss too.
  void run(const ops::Tokens& tokens, Times* times) {
    if (unit_.kind == graph::UnitKind::kEmbedding) run_pass(forward_, tokens, times);
    run_pass(pass_, tokens, times);
  }

 private:
  int64_t lay_out(const Arena* arena) {
    int64_t taken = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t at = taken;
      taken += align_up(std::max<int64_t>(bytes, 1), kLine);
      return arena == nullptr ? nullptr : arena->at(at);
    };
    binding_ = {};
    const auto boundary = [&](graph::ValueId id) {
      return id < 0 ? 0 : graph::value_bytes(unit_.values[static_cast<size_t>(id)], dims_);
    };
    binding_.input = take(boundary(unit_.input));
    binding_.output = take(boundary(unit_.output));
    binding_.gradient = take(std::max(boundary(unit_.output), boundary(unit_.input)));
    binding_.workspace = take(std::max(pass_.workspace_bytes, forward_.workspace_bytes));
    for (const graph::Parameter& parameter : unit_.params) {
      const int64_t n = parameter.elements;
      binding_.params.push_back(parameter_view(parameter, take(n * size_of(compute_)), compute_));
      binding_.param_grads.push_back(parameter_view(parameter, take(4 * n), DType::kF32));
    }
    // The embedding's first micro-batch clears the gradient, which is most of its work.
    binding_.add_param_grads.assign(unit_.params.size(), unit_.kind != graph::UnitKind::kEmbedding);
    int64_t scratch = 0;
    for (const graph::Op& op : unit_.ops) {
      if (const auto* kernels = dynamic_cast<const ops::CpuOp*>(op.kind.get())) {
        scratch = std::max(scratch, kernels->cpu_scratch_bytes(dims_, pool_.threads()));
      }
    }
    scratch_ = {take(scratch), static_cast<size_t>(scratch)};
    return taken;
  }

  void run_pass(const graph::Pass& pass, const ops::Tokens& tokens, Times* times) {
    ops::LossSum loss;
    const ops::CpuContext context{
        .pool = &pool_, .activation = compute_, .tokens = &tokens, .scratch = scratch_, .loss = &loss};
    for (int s = 0; s < static_cast<int>(pass.steps.size()); ++s) {
      const double seconds = seconds_of([&] { run_steps(unit_, pass, s, s + 1, binding_, context, nullptr); });
      if (times == nullptr) continue;
      const graph::Step& step = pass.steps[static_cast<size_t>(s)];
      const graph::OpKind& kind = *unit_.ops[static_cast<size_t>(step.op)].kind;
      const graph::Work work = step.backward ? kind.backward_work(dims_) : kind.forward_work(dims_);
      (*times)[{std::string(kind.name()), step.backward, work.flops, work.bytes}].push_back(seconds);
    }
  }

  const graph::Unit& unit_;
  graph::Dims dims_;
  DType compute_;
  ThreadPool& pool_;
  graph::Pass pass_, forward_;
  UnitBinding binding_;
  std::span<std::byte> scratch_;
  Arena arena_;
};

}  // namespace

std::vector<hw::OpSample> time_ops(const graph::Graph& graph, const graph::Dims& dims, DType compute, ThreadPool& pool,
                                   ThreadPool& host_pool) {
  const Rows rows(dims, graph.vocabulary);
  const ops::Tokens tokens = rows.tokens();
  std::set<std::string> known;
  Times times;
  for (const graph::Unit& unit : graph.units) {
    std::string kind;
    for (const graph::Op& op : unit.ops) kind += std::string(op.kind->name()) + ' ';
    if (!known.insert(kind + std::to_string(unit.block_elements)).second) continue;
    Bench bench(unit, dims, compute, unit.kind == graph::UnitKind::kEmbedding ? host_pool : pool);
    bench.run(tokens, nullptr);
    double spent_s = 0;
    for (int round = 0; round < kRounds && spent_s < kEnoughSeconds; ++round) {
      spent_s += seconds_of([&] { bench.run(tokens, &times); });
    }
  }
  std::vector<hw::OpSample> samples;
  for (const auto& [key, seconds] : times) {
    const auto& [name, backward, flops, bytes] = key;
    samples.push_back({name, backward, dims.tokens, flops, bytes, median(seconds)});
  }
  return samples;
}

}  // namespace lazytrain::runtime
