#include "plan/instance_builder.h"

#include <algorithm>
#include <map>

#include "graph/menu.h"
#include "plan/cost.h"
#include "plan/mip/evaluate.h"
#include "plan/moments.h"

namespace lazytrain::plan {
namespace {

constexpr double kGb = 1e9;
constexpr int kMenuItems = 10;
constexpr int kMaxBlock = 8;
constexpr double kGap = 0.002;             // what is compiled is made for less memory and loses some of it again
constexpr int kSlots = 2;                  // streamed weights and gradients, each
constexpr double kLeastBoundaries = 0.25;  // of all boundaries: what host memory should hold of them

class Builder {
 public:
  explicit Builder(const PlanningTask& task)
      : task_(task),
        graph_(task.graph),
        machine_(task.machine),
        optimizer_bytes_(optimizer_bytes(task.graph, task.optimizer_state)),
        dims_{task.shape.micro_batch * task.shape.seq, task.shape.seq, size_of(task.compute)},
        micros_(static_cast<double>((task.shape.batch + task.shape.micro_batch - 1) / task.shape.micro_batch)) {}

  Instance run() {
    instance_.name = graph_.family;
    instance_.units = graph_.layers();
    instance_.max_block = std::min(kMaxBlock, std::max(1, instance_.units));
    instance_.gap = kGap;
    instance_.sets_leave_behind = true;
    instance_.update_in_backward = task_.update_in_backward;
    instance_.chase = task_.chase;
    set_links();
    for (int j = 0; j < instance_.units; ++j) add_layer(j + 1);
    add_head();
    set_budgets();
    return std::move(instance_);
  }

 private:
  double elements(const graph::Unit& unit) const { return static_cast<double>(unit.block_elements); }
  const graph::Unit& head() const { return graph_.units.back(); }
  const graph::Unit& embedding() const { return graph_.units.front(); }
  double head_elements() const { return elements(head()) + (graph_.tied ? elements(embedding()) : 0); }
  double stream_bytes() const { return task_.compute == DType::kF32 ? 4 : 2; }
  int64_t optimizer_bytes_of(const graph::Unit& unit) const {
    return optimizer_bytes_[static_cast<size_t>(&unit - graph_.units.data())];
  }
  double state_bytes(const graph::Unit& unit) const { return static_cast<double>(optimizer_bytes_of(unit)); }
  double boundary_gb() const {
    const auto& value = embedding().values[static_cast<size_t>(embedding().output)];
    return micros_ * static_cast<double>(graph::value_bytes(value, dims_)) / kGb;
  }
  double update_seconds(const graph::Unit& unit, Lane lane) const {
    const double bandwidth = lane == Lane::kHost ? machine_.host_bandwidth : machine_.memory_bandwidth;
    return plan::update_seconds(unit.block_elements, optimizer_bytes_of(unit), bandwidth) *
           (task_.measured ? task_.measured->other(Action::kUpdate, lane).factor() : 1);
  }
  double accumulate_seconds(const graph::Unit& unit) const {
    return kNormBytes * elements(unit) / machine_.host_bandwidth *
           (task_.measured ? task_.measured->other(Action::kAccumulate, Lane::kHost).factor() : 1);
  }
  // By how much longer than the analytic table says.
  double factor(int unit, Pass pass) const {
    return task_.measured ? task_.measured->compute(graph_, unit, pass).factor() : 1;
  }

  void set_links() {
    const hw::Links& l = machine_.links;
    const auto rate = [&](double bytes_a_second, Lane lane) {
      return bytes_a_second / kGb / (task_.measured ? task_.measured->lane(lane).factor() : 1);
    };
    const double joint = (l.joint > 0 ? l.joint : l.h2d + l.d2h) / kGb;
    instance_.links_gbs = {rate(l.h2d, Lane::kH2D), rate(l.d2h, Lane::kD2H),
                           joint / (task_.measured ? task_.measured->joint_factor() : 1),
                           rate(l.disk_read, Lane::kDiskRead), rate(l.disk_write, Lane::kDiskWrite)};
  }

  // Costs of one kind of layer; layers that are alike share them.
  struct LayerCosts {
    double forward_s = 0, backward_s = 0;
    int64_t forward_workspace = 0;
    std::vector<graph::MenuItem> menu;
  };

  const LayerCosts& costs_of(const graph::Unit& unit) {
    std::string kind;
    for (const graph::Op& op : unit.ops) kind += std::string(op.kind->name()) + ' ';
    const auto [it, added] = known_.try_emplace(kind + std::to_string(unit.block_elements));
    if (!added) return it->second;
    LayerCosts& costs = it->second;
    const graph::RetainedSet none;
    const graph::Pass forward = graph::forward_pass(unit, none, dims_);
    const graph::Pass backward = graph::backward_pass(unit, none, dims_, false);
    costs.forward_s = pass_seconds(unit, forward, dims_, machine_) + machine_.launch_s;
    costs.backward_s = pass_seconds(unit, backward, backward.recompute_steps, static_cast<int>(backward.steps.size()),
                                    dims_, machine_) +
                       machine_.launch_s;
    costs.forward_workspace = forward.workspace_bytes;
    const auto seconds = [&](const graph::OpKind& kind_of_op) {
      return op_seconds(kind_of_op, false, dims_, machine_);
    };
    costs.menu = graph::retained_menu(unit, dims_, seconds, kMenuItems);
    return costs;
  }

  void add_layer(int at) {
    const graph::Unit& unit = graph_.units[static_cast<size_t>(at)];
    const LayerCosts& costs = costs_of(unit);
    const double again = factor(at, Pass::kRecompute);
    const double a = boundary_gb();
    const double accumulators = kSlots * 4 * elements(unit) / kGb;
    instance_.forward_s.push_back(micros_ * costs.forward_s * factor(at, Pass::kForward));
    instance_.backward_s.push_back(micros_ * costs.backward_s * factor(at, Pass::kBackward));
    instance_.boundary_gb.push_back(a);
    instance_.weight_gb.push_back(stream_bytes() * elements(unit) / kGb);
    instance_.grad_gb.push_back(stream_bytes() * elements(unit) / kGb);
    instance_.update_s.push_back(update_seconds(unit, Lane::kHost));
    if (task_.update_in_backward) instance_.accumulate_s.push_back(accumulate_seconds(unit));
    instance_.device_home_gb.push_back((4 + stream_bytes()) * elements(unit) / kGb + state_bytes(unit) / kGb);
    instance_.device_update_s.push_back(update_seconds(unit, Lane::kCompute));
    // The window's own input and output are alive whether they are checkpoints or not.
    instance_.forward_workspace_gb.push_back(static_cast<double>(costs.forward_workspace) / kGb + 2 * a);
    std::vector<MenuEntry> menu;
    for (const graph::MenuItem& item : costs.menu) {
      const double launch = item.recompute_s > 0 ? machine_.launch_s : 0;
      menu.push_back({item.retained, micros_ * static_cast<double>(item.bytes) / kGb,
                      micros_ * (item.recompute_s + launch) * again,
                      static_cast<double>(item.workspace_bytes) / kGb + a + accumulators});
    }
    if (!task_.retained_sets) menu.resize(1);
    instance_.menu.push_back(std::move(menu));
  }

  // The embedding's part of the last micro-batch on the host, and the rounding of its gradient.
  double scatter_s() const {
    const graph::RetainedSet none;
    const graph::Pass backward = graph::backward_pass(embedding(), none, dims_, false);
    return pass_seconds(embedding(), backward, dims_, machine_) + machine_.launch_s +
           kAccumulateBytes * elements(embedding()) / machine_.host_bandwidth;
  }

  // The head's memory stands in the windows beside it: its weights come in during the last forward window, its
  // gradients go out during the first backward window.
  void add_head() {
    const graph::Pass loss = graph::loss_pass(head(), dims_);
    const double n = head_elements();
    const double loss_s = pass_seconds(head(), loss, dims_, machine_) + machine_.launch_s;
    instance_.head = {micros_ * loss_s * factor(static_cast<int>(graph_.units.size()) - 1, Pass::kLoss),
                      stream_bytes() * n / kGb, stream_bytes() * n / kGb};
    const double weights = stream_bytes() * n / kGb, gradients = 4 * n / kGb;
    const double loss_workspace = static_cast<double>(loss.workspace_bytes) / kGb;
    double& last = instance_.forward_workspace_gb.back();
    last = std::max(last + weights, weights + gradients + loss_workspace + 2 * boundary_gb());
    for (MenuEntry& entry : instance_.menu.back()) entry.workspace_gb += gradients;
    // The rows of the first micro-batch come before the first window; behind the last one goes the gradient of the
    // last.
    const double rows_gb = boundary_gb() / micros_;
    instance_.lead_s = rows_gb / instance_.links_gbs.h2d;
    instance_.tail_s = rows_gb / instance_.links_gbs.d2h + scatter_s();
    instance_.embedding_update_s = update_seconds(embedding(), Lane::kHost);
    instance_.head_update_s = update_seconds(head(), Lane::kHost);
  }

  int64_t scratch(bool host) const {
    int64_t bytes = 0;
    for (size_t u = 0; u < graph_.units.size() && task_.scratch_bytes; ++u) {
      if ((u == 0) != host) continue;
      for (const graph::Op& op : graph_.units[u].ops) bytes = std::max(bytes, task_.scratch_bytes(*op.kind, dims_));
    }
    return bytes;
  }

  void set_budgets() {
    const double slots = kSlots * *std::max_element(instance_.weight_gb.begin(), instance_.weight_gb.end());
    instance_.budget_gb.device = task_.budget.device - slots - static_cast<double>(scratch(false)) / kGb;
    double fixed = static_cast<double>(scratch(true)) / kGb + 2 * boundary_gb();  // embedded rows, and their gradient
    double layer_weights = 0, layer_state = 0;
    for (const graph::Unit& unit : graph_.units) {
      fixed += stream_bytes() * elements(unit) / kGb;  // stored gradients
      const bool layer = unit.kind == graph::UnitKind::kLayer;
      (layer ? layer_weights : fixed) += 4 * elements(unit) / kGb;
      (layer ? layer_state : fixed) += state_bytes(unit) / kGb;
    }
    // Its fp32 gradient: a tied head adds to it, otherwise it is made when nothing is to come back any more.
    (graph_.tied ? fixed : instance_.host_end_gb) += 4 * elements(embedding()) / kGb;
    instance_.budget_gb.disk = task_.budget.disk;
    const double layers = layer_weights + layer_state;
    // With room for all state and as much again for activations nothing of it needs another home.
    if (fixed + std::max(layers, instance_.host_end_gb) + layers <= task_.budget.host) {
      instance_.budget_gb.host = task_.budget.host - fixed - layers;
      return;
    }
    instance_.budget_gb.host = task_.budget.host - fixed;
    const auto formats = moment_formats(graph_, task_.optimizer_state);
    for (int j = 0; j < instance_.units; ++j) {
      const graph::Unit& unit = graph_.units[static_cast<size_t>(j) + 1];
      instance_.host_state_gb.push_back(state_bytes(unit) / kGb);
      instance_.host_weight_gb.push_back(4 * elements(unit) / kGb);
      const auto pieces =
          static_cast<int>(state_cuts(unit, formats[static_cast<size_t>(j) + 1], task_.piece_elements).size()) - 1;
      instance_.state_pieces = j == 0 ? pieces : std::min(instance_.state_pieces, pieces);
    }
    // States first: a gigabyte of them costs a read and a write a step, one of weights another read in backward.
    // Weights go too only where they, the states in passing and some boundaries do not fit.
    const double most = *std::max_element(instance_.host_state_gb.begin(), instance_.host_state_gb.end());
    const double staging = instance_.staged_share() * most;
    const double all = static_cast<double>(instance_.units) * boundary_gb(), some = kLeastBoundaries * all;
    instance_.disk_weights =
        fixed + layer_weights + std::max(staging + some, instance_.host_end_gb) > task_.budget.host;
    // Boundaries on disk are written as states are, and save no more: they go where all states on disk do not make
    // room.
    instance_.disk_activations = fixed + layer_weights + staging + all > task_.budget.host;
    if (!instance_.disk_weights) return;
    // Beside those for the update, two units' weights on their way to a window of backward.
    instance_.budget_gb.host -= 2 * *std::max_element(instance_.weight_gb.begin(), instance_.weight_gb.end());
  }

  const PlanningTask& task_;
  const graph::Graph& graph_;
  const hw::Profile& machine_;
  std::vector<int64_t> optimizer_bytes_;  // by unit
  graph::Dims dims_;
  double micros_;
  Instance instance_;
  std::map<std::string, LayerCosts> known_;
};

}  // namespace

Instance make_instance(const PlanningTask& task) { return Builder(task).run(); }

namespace {

void set_early_updates(Policy& policy, const Instance& instance, const WindowChoices& choices) {
  const auto plan = Evaluator(instance).plan(choices);
  double most = 0;
  for (UnitPolicy& unit : policy.units) unit.early_update = 0;
  for (size_t j = 0; plan && j < choices.units.size(); ++j) {
    const double all = instance.update_s[j];
    policy.units[j + 1].early_update = all > 0 ? std::clamp(plan->early_update_s[j] / all, 0.0, 1.0) : 0;
    most = std::max(most, policy.units[j + 1].early_update);
  }
  policy.update_in_backward = most > 0;
}

}  // namespace

Policy make_policy(const PlanningTask& task, const Instance& instance, const WindowChoices& choices) {
  Policy policy = blank_policy("lazytrain", task.graph, task.shape);
  policy.optimizer_state = task.optimizer_state;
  policy.update_chases_forward = task.chase;
  for (size_t i = 0; i < choices.boundaries.size(); ++i) {
    policy.boundaries[i].checkpoint = choices.boundaries[i].has_value();
    policy.boundaries[i].home = choices.boundaries[i].value_or(Tier::kDevice);
  }
  for (size_t j = 0; j < choices.units.size(); ++j) {
    const UnitChoice& choice = choices.units[j];
    UnitPolicy& unit = policy.units[j + 1];
    unit.retained = instance.menu[j][static_cast<size_t>(choice.menu)].retained;
    unit.retained_home = choice.retained_home;
    unit.keep_weights = choice.keep_weights;
    unit.weight_home = choice.device_home ? Tier::kDevice : choice.weights_on_disk ? Tier::kDisk : Tier::kHost;
    unit.optimizer_home = choice.device_home ? Tier::kDevice : choice.state_on_disk ? Tier::kDisk : Tier::kHost;
  }
  if (task.update_in_backward) set_early_updates(policy, instance, choices);
  return policy;
}

}  // namespace lazytrain::plan
