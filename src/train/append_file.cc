#include "train/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lazytrain::train {

AppendFile::AppendFile(const std::filesystem::path& path, Tell tell) : path_(path), tell_(std::move(tell)) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw RunError("{}: cannot be opened for writing: {}", path.string(), std::strerror(errno));
  end_ = ::lseek(fd_, 0, SEEK_END);
}

AppendFile::~AppendFile() {
  if (!waiting_.empty()) write_waiting();
  lost_ += static_cast<int64_t>(waiting_.size());
  if (lost_ > 0) tell_(fmt::format("{}: {} records could not be written and are lost", path_.string(), lost_));
  ::close(fd_);
}

void AppendFile::append(std::string record) {
  waiting_bytes_ += record.size();
  waiting_.push_back(std::move(record));
  const bool written = write_waiting();
  if (!written && !in_trouble_) {
    tell_(
        fmt::format("{}: writing failed: {}; the run goes on, the lines are kept in memory and tried again: free space",
                    path_.string(), std::strerror(error_)));
  } else if (written && in_trouble_) {
    tell_(fmt::format("{}: can be written again", path_.string()));
  }
  in_trouble_ = !written;
  while (waiting_bytes_ > kMaxWaitingBytes) {
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
    ++lost_;
  }
}

bool AppendFile::write_waiting() {
  while (!waiting_.empty()) {
    if (!write_whole(waiting_.front())) return false;
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  return true;
}

bool AppendFile::write_whole(std::string_view record) {
  for (size_t done = 0; done < record.size();) {
    const ssize_t written =
        ::pwrite(fd_, record.data() + done, record.size() - done, end_ + static_cast<int64_t>(done));
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      error_ = written == 0 ? EIO : errno;
      [[maybe_unused]] const int cut = ::ftruncate(fd_, end_);  // when it fails too, the next try writes over the rest
      return false;
    }
  }
  end_ += static_cast<int64_t>(record.size());
  return true;
}

}  // namespace lazytrain::train
