// The disk store beside fio: the same folder, block size, depth and direct I/O, one after the other, in rounds.
//   disk FOLDER [--bytes N] [--rounds N] [--block N] [--depth N] [--pool]     N in bytes or as 1GiB, 256MB
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/median.h"
#include "base/rng.h"
#include "base/units.h"
#include "runtime/arena.h"
#include "runtime/disk_store.h"

namespace lazytrain {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  runtime::DiskOptions disk;
  int64_t bytes = int64_t{1} << 30;
  int rounds = 5;
};

Arguments parse(std::span<char*> words) {
  Arguments arguments;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i];
    const auto number = [&] {
      if (i + 1 == words.size()) throw UsageError("{} wants a number", word);
      return parse_bytes(words[++i], word);
    };
    if (word == "--bytes") {
      arguments.bytes = number() / runtime::kDiskAlignment * runtime::kDiskAlignment;
    } else if (word == "--rounds") {
      arguments.rounds = static_cast<int>(std::max<int64_t>(number(), 1));
    } else if (word == "--block") {
      arguments.disk.block = number();
    } else if (word == "--depth") {
      arguments.disk.depth = static_cast<int>(number());
    } else if (word == "--pool") {
      arguments.disk.io_uring = false;
    } else if (word.starts_with("-") || !arguments.disk.folder.empty()) {
      throw UsageError("usage: disk FOLDER [--bytes N] [--rounds N] [--block N] [--depth N] [--pool]");
    } else {
      arguments.disk.folder = word;
    }
  }
  return arguments;
}

// Bytes a second of `body`, which moves `bytes`.
double rate_of(int64_t bytes, const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return static_cast<double>(bytes) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Our store moves `bytes` in calls of 64 MiB, as the programs do with weights and states of a layer. Arenas ask for
// huge pages, of which a block needs one and not 256: without them the store has what fio has.
class Ours {
 public:
  Ours(const Arguments& a, bool huge_pages)
      : bytes_(a.bytes), memory_(kCall, "the benchmark"), store_(a.bytes, a.disk) {
    if (!huge_pages) ::madvise(memory_.at(0), static_cast<size_t>(kCall), MADV_NOHUGEPAGE);
    const CounterRng rng(1, 0);  // data that no disk can compress
    auto* words = reinterpret_cast<uint64_t*>(memory_.at(0));
    for (int64_t i = 0; i < kCall / 8; ++i) words[i] = rng.bits(static_cast<uint64_t>(i));
    store_.register_memory({memory_.at(0), static_cast<size_t>(kCall)});
  }
  double write() {
    return each([&](int64_t offset, std::span<std::byte> memory) { store_.channel(1).write(offset, memory); });
  }
  double read() {
    return each([&](int64_t offset, std::span<std::byte> memory) { store_.channel(0).read(offset, memory); });
  }
  std::string how() const {
    return fmt::format("{}{}{}", store_.uses_io_uring() ? "io_uring" : "pread and pwrite",
                       store_.is_direct() ? ", O_DIRECT" : ", page cache",
                       store_.is_registered() ? ", registered memory" : "");
  }

 private:
  static constexpr int64_t kCall = 64 << 20;
  double each(const std::function<void(int64_t, std::span<std::byte>)>& move) {
    return rate_of(bytes_, [&] {
      for (int64_t offset = 0; offset < bytes_; offset += kCall) {
        move(offset, {memory_.at(0), static_cast<size_t>(std::min(kCall, bytes_ - offset))});
      }
    });
  }

  int64_t bytes_;
  runtime::Arena memory_;
  runtime::DiskStore store_;
};

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw RunError("cannot run: {}", command);
  std::string text;
  std::array<char, 4096> part{};
  for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), got);
  if (::pclose(pipe) != 0) throw RunError("failed: {}\n{}", command, text);
  return text;
}

// fio on a file of its own in the same folder, which it keeps between the rounds.
class Fio {
 public:
  Fio(const Arguments& a, bool io_uring)
      : file_(a.disk.folder / fmt::format("lazytrain-bench-{}.fio", ::getpid())),
        command_(fmt::format(
            "fio --name=bench --filename='{}' --direct=1 --size={} --bs={} --iodepth={} {} --output-format=json",
            file_.string(), a.bytes, a.disk.block, a.disk.depth,
            io_uring ? "--ioengine=io_uring --fixedbufs=1 --registerfiles=1" : "--ioengine=libaio")) {}
  ~Fio() {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }
  Fio(const Fio&) = delete;
  Fio& operator=(const Fio&) = delete;
  static bool is_there() { return std::system("command -v fio >/dev/null 2>&1") == 0; }
  // `huge_pages`: the C library asks for them where fio allocates its buffers.
  double run(const std::string& what, bool huge_pages) const {
    const std::string pages = huge_pages ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " : "";
    const std::string text = output_of(pages + command_ + " --rw=" + what + " 2>/dev/null");
    return nlohmann::json::parse(text.substr(text.find('{'))).at("jobs").at(0).at(what).at("bw_bytes").get<double>();
  }

 private:
  fs::path file_;
  std::string command_;
};

void run(const Arguments& a) {
  Ours ours(a, true);
  Ours plain(a, false);
  std::optional<Fio> fio;
  if (Fio::is_there()) {
    fio.emplace(a, a.disk.io_uring);
  } else {
    fmt::print("fio is not installed (apt-get install fio): no comparison\n");
  }
  fmt::print("{}: {} in blocks of {}, {} at a time; ours: {}; {} rounds, medians\n", a.disk.folder.string(),
             format_bytes(a.bytes), format_bytes(a.disk.block), a.disk.depth, ours.how(), a.rounds);
  std::map<std::string, std::vector<double>> rates;
  for (int round = -1; round < a.rounds; ++round) {  // round -1 writes the files for the first time
    for (const std::string what : {"write", "read"}) {
      for (const bool huge_pages : {true, false}) {
        const std::string key = fmt::format("{:<5} {}", what, huge_pages ? "huge pages" : "4 kB pages");
        Ours& store = huge_pages ? ours : plain;
        const double rate = what == "write" ? store.write() : store.read();
        const double peer = fio ? fio->run(what, huge_pages) : 0;
        if (round < 0) continue;
        rates[key + " ours"].push_back(rate);
        if (fio) rates[key + " fio"].push_back(peer);
      }
    }
  }
  for (const auto& [name, values] : rates) {
    if (name.ends_with("fio")) continue;
    const std::string key = name.substr(0, name.rfind(' '));
    fmt::print("{}   ours {:7.1f} MB/s", key, median(values) / 1e6);
    if (fio) {
      const double peer = median(rates[key + " fio"]);
      fmt::print("   fio {:7.1f} MB/s   ratio {:.2f}", peer / 1e6, median(values) / peer);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace lazytrain

int main(int argc, char** argv) {
  try {
    lazytrain::init_logging(spdlog::level::info);
    lazytrain::run(lazytrain::parse({argv, static_cast<size_t>(argc)}));
  } catch (const lazytrain::UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
