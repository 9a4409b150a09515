// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes.
//
//   u64 little-endian n | n bytes {"__metadata__": {text: text}, name: {"dtype", "shape",
//   "data_offsets": [begin, end]}, …} | data
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::train {

using Metadata = std::map<std::string, std::string>;
using NamedTensor = std::pair<std::string, Tensor>;

struct SafetensorsFile {
  Metadata metadata;
  std::vector<NamedTensor> tensors;  // on the CPU, in the order of their bytes

  [[nodiscard]] const Tensor* find(const std::string& name) const;  ///< nullptr if absent
};

/// Writes f32, f64 and i32 tensors of any device. The file appears under its name complete and
/// synced, or not at all; Error naming it if the disk is full. A checksum of the data joins the
/// metadata.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       Metadata metadata);

/// Reads F32, F64 and I32 tensors. DataError naming the file and what is wrong: missing, truncated,
/// header not JSON, unknown dtype, sizes that do not fit, ranges that overlap or leave the file, or
/// bytes that do not match the checksum (files without one are taken as they are).
[[nodiscard]] SafetensorsFile read_safetensors(const std::filesystem::path& path);

/// Makes a new file name last: syncs the folder that holds it.
void sync_folder(const std::filesystem::path& folder);

}  // namespace skytape::train
