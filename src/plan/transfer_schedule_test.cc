#include "plan/transfer_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace lazytrain::plan {
namespace {

constexpr hw::Links kLinks{.h2d = 10, .d2h = 10, .joint = 15, .disk_read = 2, .disk_write = 2};

std::vector<WindowTraffic> windows(int count, double seconds) {
  return std::vector<WindowTraffic>(static_cast<size_t>(count), WindowTraffic{.seconds = seconds});
}

TEST(TransferSchedule, LeavesAtOnceAndComesBackJustInTime) {
  // Windows 0-3 forward, 4 the loss, 5-8 backward; one window moves 10 bytes.
  const std::vector<Offload> offloads = {{.bytes = 10, .release = 0, .need = 8},
                                         {.bytes = 10, .release = 1, .need = 7}};
  const auto moves = schedule_transfers(offloads, windows(9, 1), 4, kLinks, 0);
  EXPECT_EQ(moves[0].copied_out, 1);
  EXPECT_EQ(moves[1].copied_out, 2);
  EXPECT_EQ(moves[0].fetched, 7);
  EXPECT_EQ(moves[1].fetched, 6);
  EXPECT_TRUE(moves[0].leaves && moves[1].leaves);
}

TEST(TransferSchedule, BigOnesSpreadOverWindowsInBothDirections) {
  const auto moves = schedule_transfers({{.bytes = 25, .release = 0, .need = 8}}, windows(9, 1), 4, kLinks, 0);
  EXPECT_EQ(moves[0].copied_out, 3);  // windows 1, 2 and half of 3
  EXPECT_EQ(moves[0].fetched, 5);     // half of 5, 6 and 7
}

TEST(TransferSchedule, MandatoryTrafficAndTheJointLimitComeFirst) {
  auto busy = windows(9, 1);
  for (WindowTraffic& w : busy) w.h2d_bytes = 10;  // leaves 5 for the way out, nothing for the way in
  const auto moves = schedule_transfers({{.bytes = 10, .release = 0, .need = 8}}, busy, 4, kLinks, 0);
  EXPECT_EQ(moves[0].copied_out, 2);
  EXPECT_EQ(moves[0].fetched, 4);  // as early as anything may come back
}

TEST(TransferSchedule, WhatHasNoTimeToBeAwayStays) {
  const auto moves = schedule_transfers({{.bytes = 30, .release = 3, .need = 5}}, windows(9, 1), 4, kLinks, 0);
  EXPECT_FALSE(moves[0].leaves);
}

TEST(TransferSchedule, DiskFollowsTheHostAndIsSkippedWhenTooSlow) {
  std::vector<Offload> offloads = {{.bytes = 4, .release = 0, .need = 18, .on_device = true, .disk = true}};
  const auto moves = schedule_transfers(offloads, windows(19, 1), 9, kLinks, 0);
  EXPECT_EQ(moves[0].copied_out, 1);
  EXPECT_EQ(moves[0].disk_written, 3);
  EXPECT_EQ(moves[0].fetched, 17);
  EXPECT_EQ(moves[0].disk_read, 15);
  EXPECT_TRUE(moves[0].disk);
  offloads[0].bytes = 40;
  const auto slow = schedule_transfers(offloads, windows(19, 1), 9, kLinks, 0);
  EXPECT_FALSE(slow[0].disk);
  EXPECT_TRUE(slow[0].leaves);
}

}  // namespace
}  // namespace lazytrain::plan
