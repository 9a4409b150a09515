#include "train/formats/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kChecksumKey = "skytape.checksum";

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& problem) {
  throw DataError(fmt::format("{}: not a readable safetensors file: {}", path.string(), problem));
}

std::span<const std::uint8_t> bytes_of(const Tensor& t) {
  return {static_cast<const std::uint8_t*>(t.raw()), t.bytes()};
}

/// Refuses a tensor by its name, which is whatever the file says.
[[noreturn]] void refuse_tensor(const std::filesystem::path& path, const std::string& name,
                                const std::string& problem) {
  refuse(path, fmt::format("tensor {}{}", data::printable(name, 200), problem));
}

/// A type of numbers in files, and ours that takes them; nothing: none does.
struct Kind {
  std::string_view name;
  std::uint64_t bits;  // of a number in the file
  std::optional<DType> dtype = {};
};
constexpr Kind kKinds[] = {{"F32", 32, DType::f32},
                           {"F64", 64, DType::f64},
                           {"I32", 32, DType::i32},
                           {"BF16", 16, DType::f32},
                           {"F16", 16, DType::f32},
                           {"I64", 64, DType::i32},
                           {"BOOL", 8},
                           {"U8", 8},
                           {"I8", 8},
                           {"I16", 16},
                           {"U16", 16},
                           {"U32", 32},
                           {"U64", 64},
                           {"F8_E4M3", 8},
                           {"F8_E5M2", 8},
                           {"F8_E8M0", 8},
                           {"F8_E4M3FNUZ", 8},
                           {"F8_E5M2FNUZ", 8},
                           {"F6_E2M3", 6},
                           {"F6_E3M2", 6},
                           {"F4", 4},
                           {"C64", 64}};

/// The place of a tensor in the file, from the header.
struct Entry {
  std::string name;
  const Kind* kind = nullptr;
  Shape shape;                       // empty where there are too many axes
  std::string foreign;               // why no tensor of ours takes it; empty: one does
  std::uint64_t bits = 0;            // that the shape needs; or kTooLarge
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};
constexpr auto kTooLarge = std::numeric_limits<std::uint64_t>::max();

/// `most_bits`: those of the data.
Entry parse_entry(const std::filesystem::path& path, const std::string& name, const Json& value,
                  std::uint64_t most_bits) {
  Entry entry;
  entry.name = name;
  const auto dtype = value.at("dtype").get<std::string>();
  for (const Kind& kind : kKinds) {
    if (dtype == kind.name) entry.kind = &kind;
  }
  if (entry.kind == nullptr) {
    refuse_tensor(
        path, name,
        fmt::format(" has dtype {}, which the format does not know", data::printable(dtype)));
  }
  if (!entry.kind->dtype) entry.foreign = entry.kind->name;
  const Json& axes = value.at("shape");
  if (!axes.is_array()) refuse_tensor(path, name, ": its shape is no list");
  const bool fits = axes.size() <= static_cast<std::size_t>(Shape::kMaxRank);
  if (!fits) entry.foreign = fmt::format("{} with {} axes", dtype, axes.size());
  std::vector<std::int64_t> sizes;
  entry.bits = entry.kind->bits;
  for (const Json& axis : axes) {
    if (!axis.is_number_unsigned()) refuse_tensor(path, name, ": a size is no natural number");
    const auto size = axis.get<std::int64_t>();
    if (size < 0) refuse_tensor(path, name, ": a size is out of range");
    const auto factor = static_cast<std::uint64_t>(size);
    const bool too_large =
        entry.bits == kTooLarge || (size != 0 && entry.bits > most_bits / factor);
    entry.bits = too_large ? kTooLarge : entry.bits * factor;
    if (fits) sizes.push_back(size);
  }
  if (fits && entry.bits != kTooLarge) entry.shape = Shape(sizes);
  const Json& range = value.at("data_offsets");
  if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
      !range[1].is_number_unsigned()) {
    refuse_tensor(path, name, ": data_offsets must be two natural numbers");
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
      refuse_tensor(path, entry.name,
                    fmt::format(" lies at bytes {}..{}, expected it to start at {}", entry.begin,
                                entry.end, at));
    }
    if (entry.end > data_bytes) {
      refuse_tensor(
          path, entry.name,
          fmt::format(" ends at byte {} of {}: the file is truncated", entry.end, data_bytes));
    }
    if (entry.bits == kTooLarge) refuse_tensor(path, entry.name, " is larger than the file");
    if (entry.bits != 8 * (entry.end - entry.begin)) {
      refuse_tensor(
          path, entry.name,
          fmt::format(" has {} bytes, its shape needs another number", entry.end - entry.begin));
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    refuse(path, fmt::format("{} bytes of data, the header accounts for {}", data_bytes, at));
  }
}

void read_into(std::ifstream& in, char* bytes, std::uint64_t count,
               const std::filesystem::path& path) {
  in.read(bytes, static_cast<std::streamsize>(count));
  if (static_cast<std::uint64_t>(in.gcount()) != count) {
    refuse(path, in.bad() ? std::strerror(errno) : "it ends early");
  }
}

std::string read_bytes(std::ifstream& in, std::uint64_t count, const std::filesystem::path& path) {
  std::string bytes(count, '\0');
  read_into(in, bytes.data(), count, path);
  return bytes;
}

/// Numbers of a file's type, one by one, as ours.
template <class File, class Ours, class Convert>
void widen(Tensor& tensor, const char* bytes, const Convert& convert) {
  Ours* const out = tensor.data<Ours>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    File value;
    std::memcpy(&value, bytes + static_cast<std::size_t>(i) * sizeof(File), sizeof(File));
    out[i] = convert(value);
  }
}

/// Reads the next tensor of the file. An integer beyond ours makes it a foreign one.
Tensor read_tensor(std::ifstream& in, const std::filesystem::path& path, Entry& entry) {
  Tensor tensor = Tensor::empty(entry.shape, *entry.kind->dtype, Device::cpu);
  const std::uint64_t count = entry.end - entry.begin;
  if (entry.kind->name == "F16") {
    widen<Eigen::half, float>(tensor, read_bytes(in, count, path).data(),
                              [](Eigen::half value) -> float { return value; });
  } else if (entry.kind->name == "BF16") {
    widen<Eigen::bfloat16, float>(tensor, read_bytes(in, count, path).data(),
                                  [](Eigen::bfloat16 value) -> float { return value; });
  } else if (entry.kind->name == "I64") {
    const std::string bytes = read_bytes(in, count, path);
    widen<std::int64_t, std::int32_t>(tensor, bytes.data(), [&](std::int64_t value) {
      if (value != static_cast<std::int32_t>(value)) {
        entry.foreign = fmt::format("I64 with {}, beyond 32 bits", value);
      }
      return static_cast<std::int32_t>(value);
    });
  } else if (count > 0) {
    read_into(in, static_cast<char*>(tensor.raw()), count, path);
  }
  return tensor;
}

/// Returns the checksum of the header's entries of all tensors, in the order of their bytes.
std::uint64_t table_checksum(const std::vector<Entry>& entries) {
  std::string table;
  for (const Entry& entry : entries) {
    table += fmt::format("{}\n{} {} {} {}\n", entry.name, entry.kind->name, join(entry.shape),
                         entry.begin, entry.end);
  }
  return data::checksum(data::as_bytes(table));
}

std::uint64_t metadata_checksum(const Metadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    if (key != kChecksumKey) text += fmt::format("{}\n{}\n", key, value);
  }
  return data::checksum(data::as_bytes(text));
}

/// The first of ours that the format has: itself.
const Kind& kind_of(DType dtype) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const Kind& kind) { return kind.dtype == dtype; });
}

}  // namespace

const Tensor* SafetensorsFile::find(const std::string& name) const {
  for (const auto& [known, tensor] : tensors) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

std::string SafetensorsFile::foreign_kind(const std::string& name) const {
  for (const ForeignTensor& tensor : foreign) {
    if (tensor.name == name) return tensor.kind;
  }
  return {};
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       Metadata metadata) {
  std::vector<NamedTensor> on_host;
  std::vector<Entry> entries;
  Json header = Json::object();
  std::uint64_t at = 0;
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    on_host.emplace_back(name, tensor.to(Device::cpu));
    const std::uint64_t end = at + tensor.bytes();
    header[name] = {
        {"dtype", kind_of(tensor.dtype()).name},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", Json::array({at, end})}};
    if (tensor.bytes() > 0)
      entries.push_back(
          {name, &kind_of(tensor.dtype()), tensor.shape(), "", 8 * (end - at), at, end});
    at = end;
    sum = data::checksum(bytes_of(on_host.back().second), sum);
  }
  metadata[kChecksumKey] = data::to_hex(sum) + data::to_hex(table_checksum(entries)) +
                           data::to_hex(metadata_checksum(metadata));
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

SafetensorsFile read_safetensors(const std::filesystem::path& path,
                                 const std::function<bool(const std::string& name)>& wanted) {
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw DataError(fmt::format("{}: cannot read it: {}", path.string(), error.message()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw DataError(fmt::format("{}: cannot open it: {}", path.string(), std::strerror(errno)));
  }
  std::uint64_t length = 0;
  if (file_bytes < sizeof(length)) refuse(path, "it is shorter than 8 bytes");
  std::memcpy(&length, read_bytes(in, sizeof(length), path).data(), sizeof(length));
  if (length > kMostHeaderBytes || length > file_bytes - sizeof(length)) {
    refuse(path, fmt::format("its header claims {} bytes of {}", length, file_bytes));
  }

  const std::uint64_t data_bytes = file_bytes - sizeof(length) - length;
  SafetensorsFile file;
  std::vector<Entry> entries;
  try {
    const Json header = data::parse_json(read_bytes(in, length, path));
    if (!header.is_object()) refuse(path, "its header is no JSON object");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        file.metadata = value.get<Metadata>();
      } else {
        entries.push_back(parse_entry(path, name, value, 8 * data_bytes));
      }
    }
  } catch (const data::JsonError& e) {
    refuse(path, fmt::format("its header: {}", data::printable(data::problem_of(e), 300)));
  }
  check_ranges(path, entries, data_bytes);

  std::uint64_t sum = 0;
  for (Entry& entry : entries) {
    if (!entry.foreign.empty()) {
      file.foreign.push_back({entry.name, entry.foreign});
      in.seekg(static_cast<std::streamoff>(entry.end - entry.begin), std::ios::cur);
      continue;
    }
    const Tensor tensor = read_tensor(in, path, entry);
    if (!entry.foreign.empty()) {
      file.foreign.push_back({entry.name, entry.foreign});
      continue;
    }
    sum = data::checksum(bytes_of(tensor), sum);
    if (!wanted || wanted(entry.name)) file.tensors.emplace_back(entry.name, tensor);
  }
  const auto expected = file.metadata.find(kChecksumKey);
  if (expected == file.metadata.end()) return file;
  const std::string of_data = data::to_hex(sum);
  std::erase_if(entries, [](const Entry& entry) { return entry.begin == entry.end; });
  if (!expected->second.starts_with(of_data)) {
    refuse(path, "its data do not match their checksum: the file is corrupted");
  }
  // Files of former versions end behind the checksum of the data, or of the table.
  const std::string of_table = data::to_hex(table_checksum(entries));
  const std::string behind = expected->second.substr(of_data.size());
  if (!behind.empty() && !behind.starts_with(of_table)) {
    refuse(path,
           "what its header says of the tensors does not match the checksum: the file is "
           "corrupted");
  }
  if (behind.size() > of_table.size() &&
      behind != of_table + data::to_hex(metadata_checksum(file.metadata))) {
    refuse(path, "its metadata do not match their checksum: the file is corrupted");
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
