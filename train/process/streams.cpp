#include "train/process/streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace skytape::train {

void open_standard_streams() {
  int file = STDIN_FILENO;
  while (file >= 0 && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDWR);  // the lowest free
  if (file > STDERR_FILENO) ::close(file);
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace skytape::train
