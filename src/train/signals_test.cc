#include "train/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace lazytrain::train {
namespace {

using testing::ExitedWithCode;

TEST(Signals, BeforeTheFirstStepTheProcessEndsAndSaysThatNothingIsSaved) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const SignalScope signals;
          std::raise(signal);
          std::exit(0);
        },
        ExitedWithCode(1), "interrupted before the first step: nothing saved");
  }
}

TEST(Signals, WhileSteppingTheFirstAsksAndTheSecondEnds) {
  EXPECT_EXIT(
      {
        SignalScope signals;
        signals.stepping();
        if (signals.stop_requested()) std::exit(3);
        std::raise(SIGINT);
        if (!signals.stop_requested()) std::exit(4);
        std::raise(SIGINT);
        std::exit(0);
      },
      ExitedWithCode(130), "stopping after this step");
}

TEST(Signals, BehindTheLastStepTheModelIsStillWritten) {
  EXPECT_EXIT(
      {
        SignalScope signals;
        signals.stepping();
        signals.ending();
        std::raise(SIGTERM);
        std::exit(0);
      },
      ExitedWithCode(0), "the model is being written");
}

TEST(Signals, AFinishedRunIsNotEndedByASignal) {
  EXPECT_EXIT(
      {
        {
          SignalScope signals;
          signals.stepping();
          signals.ending();
          signals.finished();
        }
        std::raise(SIGINT);
        std::raise(SIGTERM);
        std::exit(0);
      },
      ExitedWithCode(0), "");
}

TEST(Signals, HandlersAreRestoredWhereNothingWasFinished) {
  EXPECT_EXIT(
      {
        { const SignalScope signals; }
        std::raise(SIGTERM);
        std::exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace lazytrain::train
