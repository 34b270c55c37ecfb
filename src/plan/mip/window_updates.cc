// The rows of the updates: what the lanes of host and disk do before forward, and when forward may start.
#include <algorithm>

#include "plan/mip/window_builder.h"

namespace lazytrain::plan {

// What r, the end of reading unit u's state, comes after.
std::vector<LinearSum> WindowBuilder::read_rows(size_t u, const std::vector<int>& read,
                                                const std::vector<int>& written) {
  const LinkRates& links = in_.links_gbs;
  const LinearSum moved = staged(u);
  std::vector<LinearSum> rows = {LinearSum().add(moved, 1 / links.disk_read)};
  if (u > 0) rows[0].add(read[u - 1], 1);
  if (!in_.is_cut_up()) {
    if (u < kStagedPieces) return rows;
    rows.push_back(LinearSum().add(written[u - kStagedPieces], 1).add(moved, 1 / links.disk_read));
    return rows;
  }
  const double piece = 1.0 / in_.state_pieces, others = 1 - in_.staged_share(), slack = in_.staged_s();
  const int on_disk = unit(u).state_on_disk;
  LinearSum first = LinearSum().add(-slack).add(on_disk, slack + piece * in_.update_s[u]);
  first.add(moved, piece / links.disk_write + others / links.disk_read);
  rows.push_back(u > 0 ? first.add(updated_[u - 1], 1) : first.add(in_.embedding_update_s));
  if (u == 0) return rows;
  LinearSum room = LinearSum().add(written[u - 1], 1).add(-slack).add(on_disk, slack);
  rows.push_back(room.add(moved, others / links.disk_write + piece / links.disk_read));
  return rows;
}

// What follows for whole choices and not for fractions of them: while a unit whose state is in host memory is updated,
// the lanes of the disk stand still but for the pieces that are on their way.
void WindowBuilder::stall_rows(size_t u, const std::vector<int>& written) {
  const LinkRates& links = in_.links_gbs;
  const double piece = 1.0 / in_.state_pieces, others = 1 - in_.staged_share(), own = in_.update_s[u];
  const LinearSum moved = staged(u);
  const auto at_least = [&](const char* name, LinearSum row, double seconds) {  // ... + seconds (1 - v - t)
    if (seconds <= 0) return;
    row.add(-seconds).add(unit(u).device_home, seconds).add(unit(u).state_on_disk, seconds);
    if (in_.update_in_backward) row.add(unit(u).early_update, 1);
    mip().at_least(named(name, u), row, 0);
  };
  LinearSum updated = LinearSum().add(updated_[u], 1).add(updated_[u - 1], -1);
  updated.add(unit(u).state_on_disk, -2 * piece * own);
  at_least("stall_e", updated.add(moved, -piece / links.disk_write - others / links.disk_read), own);
  if (in_.offers_disk()) return;  // what windows write besides may keep the lane behind for longer
  double ahead = 0;               // of writing, behind the update
  for (size_t j = 0; j < u; ++j) {
    const double state = in_.host_state_gb[j], all = state + (in_.disk_weights ? in_.host_weight_gb[j] : 0);
    const double lane =
        in_.staged_share() * all / links.disk_write - piece * (in_.update_s[j] + state / links.disk_read);
    ahead = std::max({ahead, lane, piece * all / links.disk_write});
  }
  const LinearSum lane = LinearSum().add(written[u], 1).add(written[u - 1], -1);
  at_least("stall_w", LinearSum(lane).add(moved, -1 / links.disk_write), own - ahead);
}

// When the lanes are done with a unit's update: r with reading, e with the update, w with writing it back.
void WindowBuilder::update_rows() {
  const LinkRates& links = in_.links_gbs;
  const auto column = [](int c) { return LinearSum().add(c, 1); };
  const double last = in_.is_cut_up() ? 1.0 / in_.state_pieces : 1;  // piece, of a unit
  std::vector<int> read, written;
  for (size_t u = 0; u < units_; ++u) {
    LinearSum own, after;  // of the update lane
    own.add(away(u), in_.update_s[u]);
    if (in_.update_in_backward) own.add(unit(u).early_update, -1);
    if (u == 0) after.add(in_.embedding_update_s);
    if (u > 0) after.add(updated_[u - 1], 1);
    std::vector<LinearSum> done = {after.add(own)};
    const LinearSum moved = staged(u);
    if (has_disk_homes()) {
      read.push_back(least_of("r", u, read_rows(u, read, written)));
      done.push_back(column(read[u]));
      if (in_.is_cut_up()) {
        done[1].add(unit(u).state_on_disk, last * in_.update_s[u]);
      } else {
        done[1].add(own);
      }
    }
    updated_.push_back(least_of("e", u, done));
    if (!has_disk_homes()) continue;
    std::vector<LinearSum> writes = {column(updated_[u]).add(moved, last / links.disk_write)};
    if (u > 0) {  // with what window u - 1 puts on disk
      writes.push_back(column(written[u - 1]).add(moved, 1 / links.disk_write));
      if (in_.chase) writes[1].add(p_.columns.disk_write[u - 1], 1 / links.disk_write);
    }
    written.push_back(least_of("w", u, writes));
    if (in_.is_cut_up() && u > 0) stall_rows(u, written);
  }
  if (in_.update_in_backward) early_update_rows();
}

void WindowBuilder::early_update_rows() {
  LinearSum early, time_left;
  for (size_t u = 0; u < units_; ++u) {
    LinearSum own;
    own.add(unit(u).early_update, 1).add(away(u), -in_.update_s[u]).add(unit(u).state_on_disk, in_.update_s[u]);
    mip().at_most(named("early", u), own, 0);
    // The gradient of unit u is in host memory when backward window u - 1 ends.
    if (u >= 2) time_left.add(unit(u - 2).backward, 1).add(-in_.stored_in_backward_s(u));
    early.add(unit(u).early_update, 1);
    mip().at_most(named("early_time", u), LinearSum(early).add(time_left, -1), 0);
  }
}

void WindowBuilder::start_rows() {
  const WindowColumns& c = p_.columns;
  const LinearSum all = LinearSum().add(updated_[units_ - 1], 1);
  for (size_t u = 0; u < units_; ++u) {
    if (in_.chase || u == 0) {
      LinearSum starts = LinearSum().add(c.start[u], 1).add(away(u), -in_.weight_gb[u] / in_.links_gbs.h2d);
      starts.add(in_.chase ? updated_[u] : updated_[units_ - 1], -1);
      if (u == 0) starts.add(-in_.lead_s);
      mip().at_least(named("chase", u), starts, 0);
    }
    LinearSum follows;
    follows.add(c.start[u + 1], 1).add(c.start[u], -1).add(unit(u).forward, -1);
    mip().at_least(named("follow", u), follows, 0);
  }
  if (in_.head_update_s > 0) {
    LinearSum head;
    head.add(c.start[units_], 1).add(all, -1).add(-in_.head_update_s - in_.head.weight_gb / in_.links_gbs.h2d);
    mip().at_least("chase_head", head, 0);
  }
}

}  // namespace lazytrain::plan
