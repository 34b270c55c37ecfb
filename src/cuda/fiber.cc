#include "cuda/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

// g++ and clang say in two ways that code is sanitized.
#if defined(__SANITIZE_ADDRESS__)
#define LAZYTRAIN_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAZYTRAIN_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LAZYTRAIN_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LAZYTRAIN_TSAN
#endif
#endif
#if defined(LAZYTRAIN_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LAZYTRAIN_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace lazytrain::cuda {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;  // pages are taken when they are touched

}  // namespace

// The sanitizers follow a change of stacks only where they are told of it.
struct Fiber::Impl {
  Impl() {
    stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
  }
  ~Impl() {
    destroy_tsan();
    ::munmap(stack, kStackBytes);
  }

  static void entry(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Impl*>(uintptr_t{high} << 32 | low);
    self->arrived(nullptr);
    self->body();
    self->ended = true;
    self->switch_to_caller(true);
  }

  void start(std::function<void()> b) {
    body = std::move(b);
    ended = false;
#if defined(LAZYTRAIN_ASAN)
    __asan_unpoison_memory_region(stack, kStackBytes);  // of frames that were dropped
#endif
    if (::getcontext(&own) != 0) throw std::runtime_error("getcontext failed");
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = kStackBytes;
    own.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    // Only ints reach the entry of a context.
    ::makecontext(&own, reinterpret_cast<void (*)()>(&entry), 2, static_cast<unsigned>(self >> 32),
                  static_cast<unsigned>(self));
    destroy_tsan();
#if defined(LAZYTRAIN_TSAN)
    tsan = __tsan_create_fiber(0);
#endif
  }

  void switch_to_body() {
#if defined(LAZYTRAIN_ASAN)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack, kStackBytes);
#endif
#if defined(LAZYTRAIN_TSAN)
    tsan_caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan, 0);
#endif
    ::swapcontext(&caller, &own);
#if defined(LAZYTRAIN_ASAN)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  void switch_to_caller([[maybe_unused]] bool for_good) {
#if defined(LAZYTRAIN_ASAN)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, caller_stack, caller_stack_bytes);
#endif
#if defined(LAZYTRAIN_TSAN)
    __tsan_switch_to_fiber(tsan_caller, 0);
#endif
    ::swapcontext(&own, &caller);
#if defined(LAZYTRAIN_ASAN)
    arrived(fake);
#endif
  }

  void arrived([[maybe_unused]] void* fake) {
#if defined(LAZYTRAIN_ASAN)
    __sanitizer_finish_switch_fiber(fake, &caller_stack, &caller_stack_bytes);
#endif
  }

  void destroy_tsan() {
#if defined(LAZYTRAIN_TSAN)
    if (tsan != nullptr) __tsan_destroy_fiber(tsan);
    tsan = nullptr;
#endif
  }

  std::function<void()> body;
  void* stack = nullptr;
  ucontext_t own{}, caller{};
  bool ended = true;
#if defined(LAZYTRAIN_ASAN)
  const void* caller_stack = nullptr;
  size_t caller_stack_bytes = 0;
#endif
#if defined(LAZYTRAIN_TSAN)
  void* tsan = nullptr;
  void* tsan_caller = nullptr;
#endif
};

Fiber::Fiber() : impl_(std::make_unique<Impl>()) {}
Fiber::~Fiber() = default;

void Fiber::start(std::function<void()> body) { impl_->start(std::move(body)); }

bool Fiber::resume() {
  impl_->switch_to_body();
  return impl_->ended;
}

void Fiber::yield() { impl_->switch_to_caller(false); }

}  // namespace lazytrain::cuda
