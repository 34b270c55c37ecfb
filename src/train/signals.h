// SIGINT and SIGTERM ask a run to finish its step, save and stop; a second one ends the process at once (exit 130).
// Before the first step there is nothing to save: the first one ends the process with exit code 1 and says so. Behind
// the end they are ignored: what was asked for is done.
#pragma once

namespace lazytrain::train {

class SignalScope {
 public:
  SignalScope();   // installs the handlers
  ~SignalScope();  // restores those before, unless the run is finished
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  void stepping();  // the first step begins
  void ending();    // the last step is done, only the model is still to be written
  void finished();  // from here to the end of the process signals are ignored
  bool stop_requested() const;

 private:
  bool finished_ = false;
};

}  // namespace lazytrain::train
