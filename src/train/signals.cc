#include "train/signals.h"

#include <unistd.h>
#include <csignal>
#include <string_view>

namespace lazytrain::train {
namespace {

enum Phase : std::sig_atomic_t { kStarting, kStepping, kEnding };

// The only state a signal handler may touch.
volatile std::sig_atomic_t g_phase = kStarting;
volatile std::sig_atomic_t g_requests = 0;
struct sigaction g_before_int, g_before_term;

constexpr int kFailed = 1;
constexpr int kInterrupted = 130;

void say_from_handler(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_signal(int) {
  if (g_phase == kStarting) {
    say_from_handler("\nerror: interrupted before the first step: nothing saved\n");
    ::_exit(kFailed);
  }
  if (g_requests > 0) ::_exit(kInterrupted);
  g_requests = 1;
  say_from_handler(g_phase == kStepping ? "\nstopping after this step and saving; once more to quit at once\n"
                                        : "\nthe last step is done, the model is being written; once more to quit\n");
}

void handle(void (*handler)(int), struct sigaction* before_int, struct sigaction* before_term) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, before_int);
  ::sigaction(SIGTERM, &action, before_term);
}

}  // namespace

SignalScope::SignalScope() {
  g_phase = kStarting;
  g_requests = 0;
  handle(on_signal, &g_before_int, &g_before_term);
}

SignalScope::~SignalScope() {
  if (finished_) return;
  ::sigaction(SIGINT, &g_before_int, nullptr);
  ::sigaction(SIGTERM, &g_before_term, nullptr);
}

void SignalScope::stepping() { g_phase = kStepping; }

void SignalScope::ending() { g_phase = kEnding; }

void SignalScope::finished() {
  handle(SIG_IGN, nullptr, nullptr);
  finished_ = true;
}

bool SignalScope::stop_requested() const { return g_requests > 0; }

}  // namespace lazytrain::train
