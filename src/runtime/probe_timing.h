// Timing of the probes.
#pragma once

#include <chrono>
#include <functional>

namespace lazytrain::runtime {

double seconds_of(const std::function<void()>& work);

// The fastest of repetitions behind one that warms up (pages, primitives, clocks), for `budget_s` but three at least:
// what others do on the machine meanwhile is not the machine.
double fastest_seconds(double budget_s, const std::function<void()>& work);

}  // namespace lazytrain::runtime
