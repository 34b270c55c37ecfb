#include "cuda/emulated_runtime.h"

#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "cuda/emulated_state.h"

namespace lazytrain::cuda {

EmulatedRuntime::EmulatedRuntime(EmulationOptions options) : state_(std::make_unique<State>(std::move(options))) {}
EmulatedRuntime::~EmulatedRuntime() = default;

DeviceProperties EmulatedRuntime::properties() {
  const std::lock_guard lock(state_->mutex);
  return {.name = "emulation on the CPU",
          .total_bytes = state_->options.device_bytes,
          .free_bytes = state_->options.device_bytes - state_->allocated,
          .multiprocessors = 1,
          .compute_capability = 80};
}

std::byte* EmulatedRuntime::allocate(int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  const int64_t free = state_->options.device_bytes - state_->allocated;
  if (bytes > free) {
    throw RunError("the device refuses {} of memory; {} of it are free", format_bytes(bytes), format_bytes(free));
  }
  std::vector<std::byte> memory(static_cast<size_t>(bytes), std::byte{0xff});
  std::byte* const at = memory.data();
  state_->allocations.emplace(at, std::move(memory));
  state_->allocated += bytes;
  return at;
}

void EmulatedRuntime::release(std::byte* memory) {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->allocations.find(memory);
  if (it == state_->allocations.end()) throw RunError("memory is released that the device has not given");
  state_->allocated -= std::ssize(it->second);
  state_->allocations.erase(it);
}

bool EmulatedRuntime::register_host(std::span<std::byte> memory) {
  const std::lock_guard lock(state_->mutex);
  if (state_->options.can_pin) state_->registered += std::ssize(memory);
  return state_->options.can_pin;
}

void EmulatedRuntime::unregister_host(std::span<std::byte> memory) {
  const std::lock_guard lock(state_->mutex);
  state_->registered -= std::ssize(memory);
}

Event& EmulatedRuntime::make_event() {
  const std::lock_guard lock(state_->mutex);
  return state_->events.emplace_back();
}

void EmulatedRuntime::copy(Stream& stream, void* to, const void* from, int64_t bytes, Direction direction) {
  if (state_->on_device(to, bytes) != (direction != Direction::kToHost) ||
      state_->on_device(from, bytes) != (direction != Direction::kToDevice)) {
    throw RunError("a copy of {} whose ends do not lie where its direction says", format_bytes(bytes));
  }
  stream.enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void EmulatedRuntime::fill(Stream& stream, void* memory, int value, int64_t bytes) {
  stream.enqueue([=] { std::memset(memory, value, static_cast<size_t>(bytes)); });
}

double EmulatedRuntime::seconds_between(Event& first, Event& last) {
  return std::chrono::duration<double>(last.ended_at() - first.ended_at()).count();
}

int64_t EmulatedRuntime::allocated_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->allocated;
}
int64_t EmulatedRuntime::registered_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->registered;
}

}  // namespace lazytrain::cuda
