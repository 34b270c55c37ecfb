// SIGINT and SIGTERM ask a run to finish its step, save and stop; a second one ends the process at once.
#pragma once

namespace lazytrain::train {

class SignalScope {
 public:
  SignalScope();   // installs the handlers
  ~SignalScope();  // restores those before
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  bool stop_requested() const;
};

}  // namespace lazytrain::train
