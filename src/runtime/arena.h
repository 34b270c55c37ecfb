// One allocation a tier; everything else is a view into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lazytrain::runtime {

// Zeroed, page-aligned memory of exactly the planned size. Pages are taken when they are first written.
class Arena {
 public:
  // `purpose` names it in the error (RunError with the size) when the system refuses.
  Arena(int64_t bytes, const std::string& purpose);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* at(int64_t offset) const { return data_ + offset; }
  int64_t bytes() const { return bytes_; }
  // Gives the whole pages within [begin, end) back to the system; they read as zeros from then on.
  void release(int64_t begin, int64_t end);

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lazytrain::runtime
