#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lazytrain {
namespace {

// An open descriptor that closes itself.
struct Descriptor {
  int fd;
  explicit Descriptor(int value) : fd(value) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

int open_for_reading(const std::filesystem::path& path, struct stat& info) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; a regular file ignores it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw InputError("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw InputError("{}: is not a regular file", path.string());
  }
  return fd;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, int64_t limit) {
  struct stat info {};
  const Descriptor file(open_for_reading(path, info));
  if (info.st_size > limit) {
    throw InputError("{}: {} bytes, more than the {} such a file may have", path.string(), info.st_size, limit);
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError("{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (got == 0) break;  // the file shrank meanwhile
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  struct stat info {};
  const Descriptor file(open_for_reading(path, info));
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw InputError("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::drop(size_t offset, size_t length) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + length, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  temporary_ += ".tmp";
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw RunError("{}: cannot be written: {}", temporary_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::reserve(int64_t bytes) {
  // KEEP_SIZE: the file still ends where writing ended. A file system without fallocate finds out while writing.
  if (bytes > 0 && ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != EINTR) {
    throw RunError("{}: no room for {} bytes: {}", temporary_.string(), bytes, std::strerror(errno));
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Pieces of 1 GiB: a single write is limited to just under 2 GiB on Linux.
    const ssize_t done = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw RunError("{}: writing failed: {}", temporary_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) throw RunError("{}: fsync failed: {}", temporary_.string(), std::strerror(errno));
  ::close(std::exchange(fd_, -1));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    throw RunError("{}: cannot be renamed into place: {}", path_.string(), std::strerror(error));
  }
  fsync_folder(path_.parent_path());
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void fsync_folder(const std::filesystem::path& folder) {
  const Descriptor file(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.fd < 0 || ::fsync(file.fd) != 0) {
    throw RunError("{}: cannot fsync the folder: {}", folder.string(), std::strerror(errno));
  }
}

}  // namespace lazytrain
