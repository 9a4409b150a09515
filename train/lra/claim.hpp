// Cells of a grid that several processes share through the file system: whoever holds a cell's
// claim runs it. There is no server; a claim falls with its process, and another takes the cell
// over.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace skytape::train {

class Claim {
 public:
  /// The claim to the cell in `folder`, which is created; nothing while another process has it, or
  /// while one trains there. Error if the folder cannot be written to.
  [[nodiscard]] static std::optional<Claim> take(const std::filesystem::path& folder);
  ~Claim();
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  explicit Claim(int file) : file_(file) {}
  int file_ = -1;  // locked
};

/// Tells the other processes of the same job why a cell failed, so that none runs it once more. A
/// process without a job (no launcher) tells nobody.
void say_failure(const std::filesystem::path& folder, const std::string& why);
/// What another process of this job said so.
[[nodiscard]] std::optional<std::string> failure_said(const std::filesystem::path& folder);

}  // namespace skytape::train
