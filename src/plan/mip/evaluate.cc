#include "plan/mip/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lazytrain::plan {
namespace {

constexpr double kEpsilon = 1e-9;  // GB: a byte

}  // namespace

Evaluator::Evaluator(const Instance& instance) : in_(instance), units_(static_cast<size_t>(instance.units)) {
  for (Pass* pass : {&forward_, &backward_}) {
    for (auto* v : {&pass->length, &pass->own, &pass->other, &pass->released, &pass->before, &pass->moved}) {
      v->assign(units_, 0);
    }
  }
  for (auto* v : {&out_, &to_disk_, &set_out_, &set_to_disk_, &block_s_, &block_in_, &block_read_, &block_gb_,
                  &backward_read_, &early_, &write_, &read_, &staged_, &read_end_, &update_end_, &write_end_}) {
    v->assign(units_, 0);
  }
  start_.assign(units_ + 1, 0);
  if (in_.has_disk_homes() && in_.budget_gb.disk > 0) staged_s_ = in_.staged_s();
}

const MenuEntry& Evaluator::entry(const WindowChoices& choices, size_t u) const {
  return in_.menu[u][static_cast<size_t>(choices.units[u].menu)];
}

void Evaluator::lay_out(const WindowChoices& choices) {
  homes_gb_ = host_gb_ = state_gb_ = most_staged_gb_ = disk_gb_ = 0;
  size_t begin = 0;
  double block_s = 0, block_in = 0, block_read = 0, block_gb = 0;
  for (size_t u = 0; u < units_; ++u) {
    const UnitChoice& choice = choices.units[u];
    const auto home = choices.boundaries[u];
    const double kept = entry(choices, u).retained_gb;
    staged_[u] = 0;
    to_disk_[u] = (home == Tier::kDisk ? in_.boundary_gb[u] : 0) + (choice.retained_home == Tier::kDisk ? kept : 0);
    out_[u] =
        to_disk_[u] + (home == Tier::kHost ? in_.boundary_gb[u] : 0) + (choice.retained_home == Tier::kHost ? kept : 0);
    if (in_.sets_leave_behind) {
      set_out_[u] = choice.retained_home == Tier::kDevice ? 0 : kept;
      set_to_disk_[u] = choice.retained_home == Tier::kDisk ? kept : 0;
    }
    host_gb_ += out_[u] - to_disk_[u];
    disk_gb_ += to_disk_[u];
    if (choice.device_home) {
      homes_gb_ += in_.device_home_gb[u];
    } else if (in_.has_disk_homes()) {
      staged_[u] =
          (choice.state_on_disk ? in_.host_state_gb[u] : 0) + (choice.weights_on_disk ? in_.host_weight_gb[u] : 0);
      disk_gb_ += staged_[u];
      state_gb_ += in_.host_state_gb[u] + in_.host_weight_gb[u] - staged_[u];
      most_staged_gb_ = std::max(most_staged_gb_, staged_[u]);
    }
    // Sums over the units of the block before this one; its last but one is not streamed again.
    if (home) {
      begin = u;
      block_s = block_in = block_read = block_gb = 0;
    } else {
      block_s += in_.forward_s[u - 1];
      block_gb += in_.boundary_gb[u];
      if (u >= begin + 2) {
        block_in += in_.weight_gb[u - 2];
        block_read += choices.units[u - 2].weights_on_disk ? in_.weight_gb[u - 2] : 0;
      }
    }
    const bool last = u + 1 == units_ || choices.boundaries[u + 1].has_value();
    block_gb_[u] = block_gb;
    block_s_[u] = last ? block_s : 0;
    block_in_[u] = last ? block_in : 0;
    block_read_[u] = last ? block_read : 0;
  }
}

void Evaluator::lay_out_forward(const WindowChoices& choices) {
  double held = homes_gb_;
  for (size_t u = 0; u < units_; ++u) {
    const UnitChoice& choice = choices.units[u];
    double weights = in_.head.weight_gb;
    if (u + 1 < units_) weights = choices.units[u + 1].device_home ? 0 : in_.weight_gb[u + 1];
    if (u == 0) weights += in_.boundary_gb[0];
    held += (choices.boundaries[u] ? in_.boundary_gb[u] : 0) + entry(choices, u).retained_gb +
            (choice.keep_weights ? in_.weight_gb[u] : 0);
    double length = in_.forward_s[u] + (choice.device_home ? in_.device_update_s[u] : 0);
    length = std::max({length, weights / in_.links_gbs.h2d, weights / in_.links_gbs.joint});
    forward_.length[u] = length;
    forward_.own[u] = 0;
    forward_.other[u] = weights;
    forward_.released[u] = out_[u] - set_out_[u] + (u > 0 ? set_out_[u - 1] : 0);
    forward_.before[u] = held + in_.forward_workspace_gb[u] - in_.budget_gb.device;
  }
}

void Evaluator::lay_out_backward(const WindowChoices& choices) {
  double stayed = homes_gb_;
  for (size_t u = 0; u < units_; ++u) {
    const UnitChoice& choice = choices.units[u];
    const MenuEntry& kept = entry(choices, u);
    stayed += (choices.boundaries[u] == Tier::kDevice ? in_.boundary_gb[u] : 0) +
              (choice.keep_weights ? in_.weight_gb[u] : 0) +
              (choice.retained_home == Tier::kDevice ? kept.retained_gb : 0);
    double in = block_in_[u], read = block_read_[u], out = in_.head.grad_gb;
    if (u > 0) {
      const UnitChoice& before = choices.units[u - 1];
      const double again = before.keep_weights || before.device_home ? 0 : in_.weight_gb[u - 1];
      in += again;
      read += before.weights_on_disk ? again : 0;
    }
    if (u + 1 < units_) out = choices.units[u + 1].device_home ? 0 : in_.grad_gb[u + 1];
    if (u == 0) out += in_.boundary_gb[0];
    double length = in_.backward_s[u] + kept.recompute_s + block_s_[u];
    length = std::max({length, in / in_.links_gbs.h2d, out / in_.links_gbs.d2h, (in + out) / in_.links_gbs.joint});
    if (read > 0) length = std::max(length, read / in_.links_gbs.disk_read);
    backward_.length[u] = length;
    backward_.own[u] = in;
    backward_.other[u] = out;
    backward_.released[u] = u == 0 ? 0 : out_[u - 1];
    // What is there ahead of its use must fit beside the rest: the others come later, that is before in this order.
    backward_.before[u] = stayed + block_gb_[u] + kept.workspace_gb - in_.budget_gb.device;
    backward_read_[u] = read;
  }
  double sum = 0;
  for (size_t u = 0; u < units_; ++u) {
    sum += out_[u];
    backward_.before[u] += sum;
  }
  const UnitChoice& last = choices.units[units_ - 1];
  head_in_ = last.keep_weights || last.device_home ? 0 : in_.weight_gb[units_ - 1];
  head_read_ = last.weights_on_disk ? head_in_ : 0;
}

// Updates that backward hides, as early units as possible first: every start profits. Needs the lengths of backward.
void Evaluator::lay_out_updates(const WindowChoices& choices) {
  double time = 0, early = 0;
  for (size_t u = 0; u < units_; ++u) {
    const bool waits = choices.units[u].device_home || choices.units[u].state_on_disk;
    if (u >= 2) time += backward_.length[u - 2] - in_.stored_in_backward_s(u);
    early_[u] = in_.update_in_backward && !waits ? std::clamp(time - early, 0.0, in_.update_s[u]) : 0;
    early += early_[u];
    write_[u] = 0;
    if (!in_.chase) update(choices, u);  // nothing is computed before the last of them
  }
}

// When the lanes are done with unit u's update, all units before it known.
void Evaluator::update(const WindowChoices& choices, size_t u) {
  const double own = choices.units[u].device_home ? 0 : in_.update_s[u] - early_[u];
  const double before = u > 0 ? update_end_[u - 1] : in_.embedding_update_s;
  update_end_[u] = before + own;
  if (!in_.has_disk_homes() || in_.budget_gb.disk <= 0) return;
  const double rate = in_.links_gbs.disk_write, last = in_.is_cut_up() ? 1.0 / in_.state_pieces : 1;
  const size_t behind = in_.is_cut_up() ? 1 : kStagedPieces;
  if (u >= behind) {  // only now is it known what the windows before it put on disk
    const size_t w = u - behind;
    write_end_[w] = update_end_[w] + last * staged_[w] / rate;
    if (w > 0) write_end_[w] = std::max(write_end_[w], write_end_[w - 1] + (staged_[w] + write_[w - 1]) / rate);
  }
  read_end_[u] = read_end(choices, u, before);
  const double left = !in_.is_cut_up() ? own : choices.units[u].state_on_disk ? last * own : 0;
  update_end_[u] = std::max(update_end_[u], read_end_[u] + left);
}

// When unit u's state is in host memory, its last piece too (window_problem.h).
double Evaluator::read_end(const WindowChoices& choices, size_t u, double updated_before) const {
  const double read = staged_[u] / in_.links_gbs.disk_read, write = staged_[u] / in_.links_gbs.disk_write;
  const double lane = (u > 0 ? read_end_[u - 1] : 0) + read;
  if (!in_.is_cut_up()) return u < kStagedPieces ? lane : std::max(lane, write_end_[u - kStagedPieces] + read);
  const double piece = 1.0 / in_.state_pieces, others = 1 - in_.staged_share();
  const bool on_disk = choices.units[u].state_on_disk;
  const double update = on_disk ? piece * in_.update_s[u] : -staged_s_;
  const double room = on_disk ? 0 : -staged_s_;
  return std::max({lane, updated_before + update + piece * write + others * read,
                   (u > 0 ? write_end_[u - 1] : 0) + room + others * write + piece * read});
}

// When forward of unit u (the head for u = L) may start for its update and weights.
double Evaluator::earliest(const WindowChoices& choices, size_t u) const {
  const double updated = update_end_[in_.chase && u < units_ ? u : units_ - 1];
  if (u == units_) {
    return in_.head_update_s > 0 ? updated + in_.head_update_s + in_.head.weight_gb / in_.links_gbs.h2d : 0;
  }
  if (!in_.chase && u > 0) return 0;
  return updated + (u == 0 ? in_.lead_s : 0) +
         (choices.units[u].device_home ? 0 : in_.weight_gb[u] / in_.links_gbs.h2d);
}

// What window u of forward puts on disk: as soon as it can.
void Evaluator::write_disk(size_t u) {
  head_write_left_ += to_disk_[u] - set_to_disk_[u] + (u > 0 ? set_to_disk_[u - 1] : 0);
  if (!in_.offers_disk()) return;
  write_[u] = std::clamp(forward_.length[u] * in_.links_gbs.disk_write, 0.0, head_write_left_);
  head_write_left_ -= write_[u];
}

// Moves what is released as soon as a window's length allows; a window is stretched when the next one must not begin
// before more has moved, or may not begin yet. False when something must have moved before it is released. `forward`:
// the choices, in the forward pass; null in backward.
bool Evaluator::move(Pass& pass, double rate, const WindowChoices* forward) {
  const double joint = in_.links_gbs.joint;
  double released = 0, moved = 0, start = 0;
  if (forward) {
    head_write_left_ = 0;
    if (in_.chase) update(*forward, 0);
    start = start_[0] = earliest(*forward, 0);
  }
  for (size_t u = 0; u < units_; ++u) {
    if (const double missing = pass.before[u] - moved; missing > kEpsilon) {
      if (u == 0 || missing > released - moved + kEpsilon) return false;
      double& length = pass.length[u - 1];
      const double old = length, amount = pass.moved[u - 1] + missing;
      length =
          std::max({length, (pass.own[u - 1] + amount) / rate, (pass.own[u - 1] + pass.other[u - 1] + amount) / joint});
      pass.moved[u - 1] = amount;
      moved += missing;
      start += length - old;
      if (forward) start_[u] = start;
    }
    released += pass.released[u];
    if (forward) {
      if (in_.chase && u + 1 < units_) update(*forward, u + 1);
      pass.length[u] = std::max(pass.length[u], earliest(*forward, u + 1) - start);
      write_disk(u);
    }
    const double room = std::min(pass.length[u] * rate, pass.length[u] * joint - pass.other[u]) - pass.own[u];
    pass.moved[u] = std::clamp(released - moved, 0.0, std::max(0.0, room));
    moved += pass.moved[u];
    start += pass.length[u];
    if (forward) start_[u + 1] = start;
  }
  pass.left = released - moved;
  pass.left += forward ? set_out_[units_ - 1] : out_[units_ - 1];
  if (forward) head_write_left_ += set_to_disk_[units_ - 1];
  return true;
}

// What windows of backward read from disk, from the last one on; the rest is left for the head's.
void Evaluator::read_disk() {
  double waiting = 0;
  for (size_t u = 0; u < units_; ++u) {
    if (u > 0) waiting += to_disk_[u - 1];
    read_[u] = std::clamp(backward_.length[u] * in_.links_gbs.disk_read - backward_read_[u], 0.0, waiting);
    waiting -= read_[u];
  }
  head_read_left_ = waiting + to_disk_[units_ - 1];
}

bool Evaluator::run(const WindowChoices& choices) {
  lay_out(choices);
  if (!in_.disk_activations && std::any_of(to_disk_.begin(), to_disk_.end(), [](double gb) { return gb > 0; })) {
    return false;
  }
  if (most_on_host() > in_.budget_gb.host + kEpsilon || disk_gb_ > in_.budget_gb.disk + kEpsilon) return false;
  lay_out_backward(choices);
  if (!move(backward_, in_.links_gbs.h2d, nullptr)) return false;
  lay_out_updates(choices);
  lay_out_forward(choices);
  if (!move(forward_, in_.links_gbs.d2h, &choices)) return false;
  read_disk();
  const double in = head_in_ + backward_.left, out = forward_.left;
  head_s_ =
      std::max({in_.head.compute_s, in / in_.links_gbs.h2d, out / in_.links_gbs.d2h, (in + out) / in_.links_gbs.joint});
  if (head_write_left_ > 0) head_s_ = std::max(head_s_, head_write_left_ / in_.links_gbs.disk_write);
  if (head_read_left_ + head_read_ > 0) {
    head_s_ = std::max(head_s_, (head_read_left_ + head_read_) / in_.links_gbs.disk_read);
  }
  step_s_ = start_[units_] + head_s_ + in_.tail_s;
  for (const double length : backward_.length) step_s_ += length;
  return true;
}

double Evaluator::step_s(const WindowChoices& choices) {
  return run(choices) ? step_s_ : std::numeric_limits<double>::infinity();
}

std::optional<WindowPlan> Evaluator::plan(const WindowChoices& choices) {
  if (!run(choices)) return {};
  WindowPlan plan;
  plan.choices = choices;
  plan.forward_s = forward_.length;
  plan.backward_s = backward_.length;
  plan.head_s = head_s_;
  plan.start_s = start_;
  plan.drain_gb = forward_.moved;
  plan.drain_gb.push_back(forward_.left);
  plan.return_gb = backward_.moved;
  plan.return_gb.push_back(backward_.left);
  plan.disk_write_gb = write_;
  plan.disk_write_gb.push_back(head_write_left_);
  plan.disk_read_gb = read_;
  plan.disk_read_gb.push_back(head_read_left_);
  plan.early_update_s = early_;
  plan.step_s = step_s_;
  return plan;
}

Excess Evaluator::excess(const WindowChoices& choices) {
  lay_out(choices);
  lay_out_backward(choices);
  lay_out_forward(choices);
  Excess excess;
  excess.host = std::max(0.0, most_on_host() - in_.budget_gb.host);
  excess.disk = std::max(0.0, disk_gb_ - in_.budget_gb.disk);
  for (Pass* pass : {&forward_, &backward_}) {
    double released = 0;  // up to the window before: all of it may have moved
    for (size_t u = 0; u < units_; ++u) {
      excess.device = std::max(excess.device, pass->before[u] - released);
      released += pass->released[u];
    }
  }
  for (double* gb : {&excess.device, &excess.host, &excess.disk}) {
    if (*gb < kEpsilon) *gb = 0;
  }
  return excess;
}

}  // namespace lazytrain::plan
