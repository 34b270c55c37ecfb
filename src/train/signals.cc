#include "train/signals.h"

#include <unistd.h>
#include <csignal>

namespace lazytrain::train {
namespace {

// The only state a signal handler may touch.
volatile std::sig_atomic_t g_requests = 0;
struct sigaction g_before_int, g_before_term;

constexpr int kInterrupted = 130;

void on_signal(int) {
  if (g_requests > 0) ::_exit(kInterrupted);
  g_requests = 1;
  constexpr char kMessage[] = "\nstopping after this step and saving; once more to quit at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
}

}  // namespace

SignalScope::SignalScope() {
  g_requests = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &g_before_int);
  ::sigaction(SIGTERM, &action, &g_before_term);
}

SignalScope::~SignalScope() {
  ::sigaction(SIGINT, &g_before_int, nullptr);
  ::sigaction(SIGTERM, &g_before_term, nullptr);
}

bool SignalScope::stop_requested() const { return g_requests > 0; }

}  // namespace lazytrain::train
