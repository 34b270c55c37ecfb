// Nothing is allocated while a step runs: malloc and its kin are replaced here and count what the lanes and the threads
// of their pools ask for. A program of its own, since that is no business of other tests.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <thread>

#include "ops/gemm.h"
#include "ops/gemm_onednn.h"
#include "runtime/run_record.h"
#include "runtime/state_testing.h"

// A sanitizer has replaced them already.
#ifdef LAZYTRAIN_SANITIZED
#define LAZYTRAIN_COUNTS_ALLOCATIONS 0
#else
#define LAZYTRAIN_COUNTS_ALLOCATIONS 1
#endif

namespace lazytrain::runtime {
namespace {

constexpr size_t kFrames = 48, kTraces = 4;

struct Trace {
  std::array<void*, kFrames> frames{};
  int count = 0;
};

std::atomic<bool> armed = false;
std::atomic<int64_t> own = 0, foreign = 0;  // by this project's code; by the library of matrix products
std::array<Trace, kTraces> traces;          // of the first own ones
thread_local bool is_exempt = false;        // this thread is not one of a step
thread_local bool is_counting = false;

bool is_of_onednn(void* frame) {
  Dl_info info{};
  return ::dladdr(frame, &info) != 0 && info.dli_fname != nullptr &&
         (std::strstr(info.dli_fname, "dnnl") != nullptr || std::strstr(info.dli_fname, "gomp") != nullptr);
}

[[maybe_unused]] void count_allocation() {
  if (!armed || is_exempt || is_counting) return;
  is_counting = true;
  Trace trace;
  trace.count = ::backtrace(trace.frames.data(), static_cast<int>(kFrames));
  const auto end = trace.frames.begin() + trace.count;
  if (std::any_of(trace.frames.begin(), end, is_of_onednn)) {
    ++foreign;
  } else if (const int64_t index = own++; index < static_cast<int64_t>(kTraces)) {
    traces[static_cast<size_t>(index)] = trace;
  }
  is_counting = false;
}

}  // namespace
}  // namespace lazytrain::runtime

#if LAZYTRAIN_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  lazytrain::runtime::count_allocation();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

namespace lazytrain::runtime {
namespace {

constexpr int64_t kSeq = 19;
constexpr plan::Shape kShape{4, 2, kSeq};

// Where oneDNN multiplies bf16 itself, each product makes its primitive: the one exception.
std::vector<DType> computes() {
  if (ops::preferred_gemm_strategy() == ops::GemmStrategy::kNative) return {DType::kF32};
  return {DType::kF32, DType::kBF16};
}

class Armed {
 public:
  Armed() {
    is_exempt = true;
    own = foreign = 0;
    armed = true;
  }
  ~Armed() { armed = false; }
};

class AllocationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (LAZYTRAIN_COUNTS_ALLOCATIONS == 0) GTEST_SKIP() << "allocations are a sanitizer's own";
    std::array<void*, kFrames> frames;
    ::backtrace(frames.data(), static_cast<int>(kFrames));  // loads what it needs
  }

  // What a thread keeps for the library of matrix products is made with its first product: here, on every thread.
  static void warm_up(ThreadPool& pool) {
    std::latch all(pool.threads());
    pool.run(pool.threads(), [&](int64_t) {
      all.arrive_and_wait();
      std::array<float, 16> a{}, b{}, c{};
      ops::onednn::sgemm(4, 4, 4, {a.data(), 4, false}, {b.data(), 4, false}, {c.data(), 4, false}, false);
    });
  }

  // Steps of other batches each; the first three are not counted.
  static void expect_none(const graph::Graph& graph, plan::Program program, const DiskOptions* disk,
                          const ExecutorOptions& options, ThreadPool& pool, const std::string& what) {
    testing::Running run(graph, std::move(program), pool, disk, options);
    testing::randomize(graph, run.state, 11);
    for (int64_t step = 0; step < 6; ++step) {
      const testing::Batch batch = testing::random_batch(graph.vocabulary, kShape, static_cast<uint64_t>(step));
      const auto tokens = testing::tokens_of(batch);
      const PendingUpdate update = testing::update_number(step);
      std::optional<Armed> counted;
      if (step >= 3) counted.emplace();
      const StepResult result = run.executor.run_step(tokens, step == 0 ? nullptr : &update);
      counted.reset();
      EXPECT_TRUE(std::isfinite(result.loss.nll));
      if (step < 3) continue;
      EXPECT_EQ(own, 0) << what << ", step " << step;
      for (size_t i = 0; i < std::min<size_t>(kTraces, static_cast<size_t>(own.load())); ++i) {
        ::backtrace_symbols_fd(traces[i].frames.data(), traces[i].count, 2);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
};

TEST_F(AllocationsTest, AreSeenOnOtherThreads) {
  std::atomic<bool> go = false;
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    void* volatile memory = std::malloc(100);
    std::free(memory);
    auto* volatile number = new int(3);
    delete number;
  });
  {
    const Armed counted;
    void* volatile exempt = std::malloc(100);
    std::free(exempt);
    go = true;
    other.join();
  }
  EXPECT_EQ(own, 2);
}

TEST_F(AllocationsTest, NoneInOneMemory) {
  const graph::Graph graph = model::build_graph(testing::small_llama(true));
  ThreadPool pool(2);
  warm_up(pool);
  for (const DType compute : computes()) {
    for (const std::string name : {"resident", "megatrain"}) {
      plan::Policy policy = plan::named_policy(name, graph, kShape);
      if (name == "megatrain") policy.optimizer_state = "8bit";
      expect_none(graph, testing::compiled(graph, policy, compute, 2), nullptr, {}, pool, name);
    }
  }
}

// Device, host and disk apart, with a host of its own cores and links that are held to their rates.
TEST_F(AllocationsTest, NoneWithTiersAndADisk) {
  const graph::Graph graph = model::build_graph(testing::small_llama(false));
  const testing::TemporaryFolder folder;
  hw::Profile machine = plan::testing::tiered_machine();
  machine.links = {2e9, 2e9, 3e9, 2e9, 2e9};
  ThreadPool pool(2), host_pool(1);
  warm_up(pool);
  for (const bool io_uring : {true, false}) {
    const DiskOptions disk{.folder = folder.path(), .verify = true, .io_uring = io_uring};
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const plan::Policy policy = plan::testing::random_tiered_policy(graph, kShape, seed);
      const DType compute = seed % 2 == 0 ? computes().back() : DType::kF32;
      plan::Program program = plan::compile(
          graph, policy,
          {.compute = compute, .machine = &machine, .scratch_bytes = [](const auto& kind, const auto& dims) {
             return Executor::scratch_bytes(kind, dims, 2);
           }});
      LaneRates rates{machine.links, {}};
      rates.host_seconds.assign(program.instructions.size(), 1e-6);
      expect_none(graph, std::move(program), &disk, {.host_pool = &host_pool, .cores = {}, .rates = &rates}, pool,
                  fmt::format("seed {}, {}", seed, io_uring ? "io_uring" : "threads"));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace lazytrain::runtime
