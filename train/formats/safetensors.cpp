#include "train/formats/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kChecksumKey = "skytape.checksum";

const char* format_name(DType dtype) {
  if (dtype == DType::f32) return "F32";
  return dtype == DType::f64 ? "F64" : "I32";
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& problem) {
  throw DataError(fmt::format("{}: not a readable safetensors file: {}", path.string(), problem));
}

std::span<const std::uint8_t> bytes_of(const Tensor& t) {
  return {static_cast<const std::uint8_t*>(t.raw()), t.bytes()};
}

/// Where a tensor lies, as the header says.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

/// Number of bytes a shape needs; refuses what does not fit a file.
std::uint64_t bytes_needed(const std::filesystem::path& path, const Entry& entry,
                           std::uint64_t limit) {
  std::uint64_t bytes = size_of(entry.dtype);
  for (const std::int64_t size : entry.shape) {
    if (size != 0 && bytes > limit / static_cast<std::uint64_t>(size)) {
      refuse(path, fmt::format("tensor {} is larger than the file", entry.name));
    }
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

Entry parse_entry(const std::filesystem::path& path, const std::string& name, const Json& value) {
  Entry entry;
  entry.name = name;
  const auto dtype = value.at("dtype").get<std::string>();
  if (dtype == "F64") {
    entry.dtype = DType::f64;
  } else if (dtype == "I32") {
    entry.dtype = DType::i32;
  } else if (dtype != "F32") {
    refuse(path, fmt::format("tensor {} has dtype {}, expected F32, F64 or I32", name, dtype));
  }
  std::vector<std::int64_t> sizes;
  for (const Json& size : value.at("shape")) {
    if (!size.is_natural()) {
      refuse(path, fmt::format("tensor {}: a size is no natural number", name));
    }
    sizes.push_back(size.get<std::int64_t>());
    if (sizes.back() < 0) refuse(path, fmt::format("tensor {}: a size is out of range", name));
  }
  if (sizes.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    refuse(path, fmt::format("tensor {} has {} axes, at most {} are known", name, sizes.size(),
                             Shape::kMaxRank));
  }
  entry.shape = Shape(sizes);
  const Json& range = value.at("data_offsets");
  if (!range.is_array() || range.size() != 2 || !range[0].is_natural() || !range[1].is_natural()) {
    refuse(path, fmt::format("tensor {}: data_offsets must be two natural numbers", name));
  }
  entry.begin = range[0].get<std::uint64_t>();
  entry.end = range[1].get<std::uint64_t>();
  return entry;
}

/// Entries in the order of their bytes, which they must cover without gap or overlap.
void check_ranges(const std::filesystem::path& path, std::vector<Entry>& entries,
                  std::uint64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at || entry.end < entry.begin) {
      refuse(path, fmt::format("tensor {} lies at bytes {}..{}, expected it to start at {}",
                               entry.name, entry.begin, entry.end, at));
    }
    if (entry.end > data_bytes) {
      refuse(path, fmt::format("tensor {} ends at byte {} of {}: the file is truncated", entry.name,
                               entry.end, data_bytes));
    }
    if (bytes_needed(path, entry, data_bytes) != entry.end - entry.begin) {
      refuse(path, fmt::format("tensor {} has {} bytes, its shape needs another number", entry.name,
                               entry.end - entry.begin));
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    refuse(path, fmt::format("{} bytes of data, the header accounts for {}", data_bytes, at));
  }
}

std::string read_bytes(std::ifstream& in, std::uint64_t count, const std::filesystem::path& path) {
  std::string bytes(count, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(count));
  if (static_cast<std::uint64_t>(in.gcount()) != count) refuse(path, "it ends early");
  return bytes;
}

Tensor tensor_from(const Entry& entry, const std::string& data) {
  Tensor tensor = Tensor::empty(entry.shape, entry.dtype, Device::cpu);
  if (tensor.bytes() > 0) std::memcpy(tensor.raw(), data.data() + entry.begin, tensor.bytes());
  return tensor;
}

}  // namespace

const Tensor* SafetensorsFile::find(const std::string& name) const {
  for (const auto& [known, tensor] : tensors) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       Metadata metadata) {
  std::vector<NamedTensor> on_host;
  Json header = Json::object();
  std::uint64_t at = 0;
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    on_host.emplace_back(name, tensor.to(Device::cpu));
    const std::uint64_t end = at + tensor.bytes();
    header[name] = {
        {"dtype", format_name(tensor.dtype())},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", Json::array({at, end})}};
    at = end;
    sum = data::checksum(bytes_of(on_host.back().second), sum);
  }
  metadata[kChecksumKey] = data::to_hex(sum);
  header["__metadata__"] = metadata;

  std::string text = data::json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts 8-byte aligned
  const std::uint64_t length = text.size();
  data::OutputFile out(path);
  out.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  out.write(text);
  for (const auto& [name, tensor] : on_host) {
    out.write({reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()});
  }
  out.commit();
  sync_folder(path.parent_path());
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw DataError(fmt::format("{}: cannot read it: {}", path.string(), error.message()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError(fmt::format("{}: cannot open it", path.string()));
  std::uint64_t length = 0;
  if (file_bytes < sizeof(length)) refuse(path, "it is shorter than 8 bytes");
  std::memcpy(&length, read_bytes(in, sizeof(length), path).data(), sizeof(length));
  if (length > kMostHeaderBytes || length > file_bytes - sizeof(length)) {
    refuse(path, fmt::format("its header claims {} bytes of {}", length, file_bytes));
  }

  SafetensorsFile file;
  std::vector<Entry> entries;
  try {
    const Json header = data::parse_json(read_bytes(in, length, path));
    if (!header.is_object()) refuse(path, "its header is no JSON object");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        file.metadata = value.get<Metadata>();
      } else {
        entries.push_back(parse_entry(path, name, value));
      }
    }
  } catch (const data::JsonError& e) {
    refuse(path, fmt::format("its header: {}", e.what()));
  }
  const std::uint64_t data_bytes = file_bytes - sizeof(length) - length;
  check_ranges(path, entries, data_bytes);

  const std::string data = read_bytes(in, data_bytes, path);
  std::uint64_t sum = 0;
  for (const Entry& entry : entries) {
    file.tensors.emplace_back(entry.name, tensor_from(entry, data));
    sum = data::checksum(bytes_of(file.tensors.back().second), sum);
  }
  const auto expected = file.metadata.find(kChecksumKey);
  if (expected != file.metadata.end() && expected->second != data::to_hex(sum)) {
    refuse(path, "its data do not match their checksum: the file is corrupted");
  }
  return file;
}

void sync_folder(const std::filesystem::path& folder) {
  const std::string name = folder.empty() ? "." : folder.string();
  const int handle = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) throw Error(fmt::format("{}: cannot open it: {}", name, std::strerror(errno)));
  const bool synced = ::fsync(handle) == 0 || errno == EINVAL;  // EINVAL: nothing to sync there
  const int problem = errno;
  ::close(handle);
  if (!synced) throw Error(fmt::format("{}: cannot sync it: {}", name, std::strerror(problem)));
}

}  // namespace skytape::train
