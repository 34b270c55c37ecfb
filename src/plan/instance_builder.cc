#include "plan/instance_builder.h"

#include <algorithm>
#include <map>

#include "graph/menu.h"
#include "optim/state_layout.h"
#include "plan/cost.h"

namespace lazytrain::plan {
namespace {

constexpr double kGb = 1e9;
constexpr int kMenuItems = 10;
constexpr int kMaxBlock = 8;
constexpr double kGap = 0.005;
constexpr int kSlots = 2;  // streamed weights and gradients, each

class Builder {
 public:
  explicit Builder(const PlanningTask& task)
      : task_(task),
        graph_(task.graph),
        machine_(task.machine),
        dims_{task.shape.micro_batch * task.shape.seq, task.shape.seq, size_of(task.compute)},
        micros_(static_cast<double>((task.shape.batch + task.shape.micro_batch - 1) / task.shape.micro_batch)) {}

  Instance run() {
    instance_.name = graph_.family;
    instance_.units = graph_.layers();
    instance_.max_block = std::min(kMaxBlock, std::max(1, instance_.units));
    instance_.gap = kGap;
    const auto gb = [](double rate) { return rate / kGb; };
    const hw::Links& l = machine_.links;
    instance_.links_gbs = {gb(l.h2d), gb(l.d2h), gb(l.joint > 0 ? l.joint : l.h2d + l.d2h), gb(l.disk_read),
                           gb(l.disk_write)};
    for (int j = 0; j < instance_.units; ++j) add_layer(graph_.units[static_cast<size_t>(j) + 1]);
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
  double state_bytes(const graph::Unit& unit) const {
    return static_cast<double>(optim::planned_state_bytes(task_.optimizer_state, unit.block_elements));
  }
  double boundary_gb() const {
    const auto& value = embedding().values[static_cast<size_t>(embedding().output)];
    return micros_ * static_cast<double>(graph::value_bytes(value, dims_)) / kGb;
  }
  double update_seconds(const graph::Unit& unit, double bandwidth) const {
    return elements(unit) * update_bytes(state_bytes(unit) / std::max(1.0, elements(unit))) / bandwidth;
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
      return op_seconds(kind_of_op, kind_of_op.forward_work(dims_), dims_, machine_);
    };
    costs.menu = graph::retained_menu(unit, dims_, seconds, kMenuItems);
    return costs;
  }

  void add_layer(const graph::Unit& unit) {
    const LayerCosts& costs = costs_of(unit);
    const double a = boundary_gb();
    const double accumulators = kSlots * 4 * elements(unit) / kGb;
    instance_.forward_s.push_back(micros_ * costs.forward_s);
    instance_.backward_s.push_back(micros_ * costs.backward_s);
    instance_.boundary_gb.push_back(a);
    instance_.weight_gb.push_back(stream_bytes() * elements(unit) / kGb);
    instance_.grad_gb.push_back(stream_bytes() * elements(unit) / kGb);
    instance_.update_s.push_back(update_seconds(unit, machine_.host_bandwidth));
    instance_.device_home_gb.push_back((4 + stream_bytes()) * elements(unit) / kGb + state_bytes(unit) / kGb);
    instance_.device_update_s.push_back(update_seconds(unit, machine_.memory_bandwidth));
    // The window's own input and output are alive whether they are checkpoints or not.
    instance_.forward_workspace_gb.push_back(static_cast<double>(costs.forward_workspace) / kGb + 2 * a);
    std::vector<MenuEntry> menu;
    for (const graph::MenuItem& item : costs.menu) {
      const double launch = item.recompute_s > 0 ? machine_.launch_s : 0;
      menu.push_back({item.retained, micros_ * static_cast<double>(item.bytes) / kGb,
                      micros_ * (item.recompute_s + launch),
                      static_cast<double>(item.workspace_bytes) / kGb + a + accumulators});
    }
    instance_.menu.push_back(std::move(menu));
  }

  // The head's memory stands in the windows beside it: its weights come in during the last forward window, its
  // gradients go out during the first backward window.
  void add_head() {
    const graph::Pass loss = graph::loss_pass(head(), dims_);
    const double n = head_elements();
    instance_.head = {micros_ * (pass_seconds(head(), loss, dims_, machine_) + machine_.launch_s),
                      stream_bytes() * n / kGb, stream_bytes() * n / kGb};
    const double weights = stream_bytes() * n / kGb, gradients = 4 * n / kGb;
    const double loss_workspace = static_cast<double>(loss.workspace_bytes) / kGb;
    double& last = instance_.forward_workspace_gb.back();
    last = std::max(last + weights, weights + gradients + loss_workspace + 2 * boundary_gb());
    for (MenuEntry& entry : instance_.menu.back()) entry.workspace_gb += gradients;
    instance_.embedding_update_s = update_seconds(embedding(), machine_.host_bandwidth);
    instance_.head_update_s = update_seconds(head(), machine_.host_bandwidth);
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
    fixed += 4 * elements(embedding()) / kGb;  // its fp32 gradient
    instance_.budget_gb.disk = task_.budget.disk;
    const double layers = layer_weights + layer_state;
    // With room for all state and as much again for activations nothing of it needs another home.
    if (fixed + 2 * layers <= task_.budget.host) {
      instance_.budget_gb.host = task_.budget.host - fixed - layers;
      return;
    }
    instance_.budget_gb.host = task_.budget.host - fixed;
    const hw::Links& links = machine_.links;
    // State on disk is read and written in every step, which the program's windows do not see: what the disk has left
    // for activations is the part of a step in which it is not at that.
    const double on_disk = std::max(0.0, fixed + layers - task_.budget.host);
    if (on_disk > 0 && links.disk_write > 0) {
      const double busy = on_disk * kGb / std::min(links.disk_read, links.disk_write);
      const double left = std::max(0.05, 1 - busy / std::max(busy, instance_.bound_s()));
      instance_.links_gbs.disk_write *= left;  // what is not written need not be read
    }
    for (int j = 0; j < instance_.units; ++j) {
      const graph::Unit& unit = graph_.units[static_cast<size_t>(j) + 1];
      const double state = state_bytes(unit);
      instance_.host_state_gb.push_back(state / kGb);
      instance_.host_weight_gb.push_back(4 * elements(unit) / kGb);
      double seconds = instance_.update_s[static_cast<size_t>(j)];
      if (links.disk_read > 0 && links.disk_write > 0) {
        seconds = std::max({seconds, state / links.disk_read, state / links.disk_write});
      }
      instance_.disk_update_s.push_back(seconds);
    }
  }

  const PlanningTask& task_;
  const graph::Graph& graph_;
  const hw::Profile& machine_;
  graph::Dims dims_;
  double micros_;
  Instance instance_;
  std::map<std::string, LayerCosts> known_;
};

}  // namespace

Instance make_instance(const PlanningTask& task) { return Builder(task).run(); }

Policy make_policy(const PlanningTask& task, const Instance& instance, const WindowChoices& choices) {
  Policy policy = blank_policy("lazytrain", task.graph, task.shape);
  policy.optimizer_state = task.optimizer_state;
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
  return policy;
}

}  // namespace lazytrain::plan
