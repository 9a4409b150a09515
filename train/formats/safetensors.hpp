// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes.
//
//   u64 little-endian n | n bytes {"__metadata__": {text: text}, name: {"dtype", "shape",
//   "data_offsets": [begin, end]}, …} | data
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::train {

using Metadata = std::map<std::string, std::string>;
using NamedTensor = std::pair<std::string, Tensor>;

/// A tensor that none of ours can hold. `kind`: "BOOL", "F32 with 9 axes", ….
struct ForeignTensor {
  std::string name, kind;
};

struct SafetensorsFile {
  Metadata metadata;
  std::vector<NamedTensor> tensors;    // on the CPU, in the order of their bytes
  std::vector<ForeignTensor> foreign;  // not kept

  [[nodiscard]] const Tensor* find(const std::string& name) const;  ///< nullptr if absent
  /// Returns the kind of a foreign tensor; empty: none has that name.
  [[nodiscard]] std::string foreign_kind(const std::string& name) const;
};

/// Writes f32, f64 and i32 tensors of any device. The file appears under its name complete and
/// synced, or not at all; Error naming it if the disk is full. A checksum of the data and of what
/// the header says of each tensor joins the metadata.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       Metadata metadata);

/// Reads a file of ours or of other programs. DataError naming the file and what is wrong: missing,
/// truncated, header not JSON or with a name twice, unknown dtype, sizes that do not fit, ranges
/// that overlap or leave the file, or contents that do not match the checksum (files without one
/// are taken as they are; former ones had that of the data alone). Where `wanted` is given, only
/// the tensors whose names it wants are kept; the checksum is that of all. One unwanted tensor at a
/// time is in memory.
[[nodiscard]] SafetensorsFile read_safetensors(
    const std::filesystem::path& path,
    const std::function<bool(const std::string& name)>& wanted = {});

/// Makes a new file name last: syncs the folder that holds it.
void sync_folder(const std::filesystem::path& folder);

}  // namespace skytape::train
