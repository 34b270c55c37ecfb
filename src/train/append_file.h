// Records of a run that are appended to a file while the run goes on, and that a full disk must not end.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lazytrain::train {

// Writes whole records. One that cannot be written is kept in memory and tried again with the next; what was written of
// it is cut off, so that the file never ends inside a record. Trouble is told once when it begins and once when it
// ends.
class AppendFile {
 public:
  static constexpr size_t kMaxWaitingBytes = size_t{8} << 20;  // then the oldest waiting records are lost, and counted

  using Tell = std::function<void(const std::string&)>;  // a message for the person

  // Opens `path` for appending, made when it is not there. Throws RunError.
  AppendFile(const std::filesystem::path& path, Tell tell);
  ~AppendFile();  // tries once more; tells what is lost
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string record);

 private:
  bool write_waiting();
  bool write_whole(std::string_view record);

  std::filesystem::path path_;
  Tell tell_;
  int fd_ = -1;
  int64_t end_ = 0;  // of the last whole record
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int64_t lost_ = 0;
  bool in_trouble_ = false;
  int error_ = 0;
};

}  // namespace lazytrain::train
