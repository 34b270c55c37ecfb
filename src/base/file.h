// Files: bounded reads, read-only maps, and writes that are either whole or not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lazytrain {

// The whole file as bytes. Throws InputError with the path and errno, or when it is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, int64_t limit);

// A read-only private map of a whole file; an empty file maps to an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Tells the kernel that these bytes will not be read again soon, so that they do not count as ours.
  void drop(size_t offset, size_t length) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes to `path`.tmp; commit() fsyncs, renames to `path` and fsyncs the folder. Without commit() nothing is left.
// Errors are RunError with path and errno text (ENOSPC says so).
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Takes `bytes` of disk space now, so that a full disk is found before any work. Optional.
  void reserve(int64_t bytes);
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

void write_file(const std::filesystem::path& path, std::string_view text);  // AtomicFile in one call
void fsync_folder(const std::filesystem::path& folder);

}  // namespace lazytrain
