#include "train/formats/safetensors.hpp"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "data/files/printable.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

Tensor numbers(const Shape& shape, DType dtype, int first) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(first + i));
  return Tensor::from(values, shape, dtype, Device::cpu);
}

/// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(data_bytes, '\1');
}

}  // namespace

TEST_CASE("safetensors come back with names, shapes, dtypes, values and metadata") {
  const Folder folder;
  const auto path = folder.path() / "x.safetensors";
  const std::vector<NamedTensor> tensors = {{"a.weight", numbers({2, 3}, DType::f32, 1)},
                                            {"b", numbers({5}, DType::f64, -7)},
                                            {"empty", numbers({0, 4}, DType::f32, 0)},
                                            {"scalar", numbers({}, DType::i32, 9)}};
  write_safetensors(path, tensors, {{"note", "quotes \" and \n lines"}});
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, read_file(path).data(), sizeof header_bytes);
  CHECK(header_bytes % 8 == 0);  // so that the numbers are aligned
  const SafetensorsFile file = read_safetensors(path);
  CHECK(file.metadata.at("note") == "quotes \" and \n lines");
  REQUIRE(file.tensors.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor* found = file.find(name);
    REQUIRE(found != nullptr);
    CHECK(found->shape() == tensor.shape());
    CHECK(found->dtype() == tensor.dtype());
    CHECK(found->to_vector() == tensor.to_vector());
  }
  CHECK(file.find("absent") == nullptr);
  write_safetensors(path, {{"empty", numbers({0, 4}, DType::f32, 0)}}, {});  // without any data
  REQUIRE(read_safetensors(path).find("empty") != nullptr);
  CHECK(read_safetensors(path).find("empty")->shape() == Shape{0, 4});
}

TEST_CASE("hostile safetensors are refused with the file's name and the problem") {
  const Folder folder;
  const auto refusal = [&](const std::string& bytes) {
    const auto path = folder.write("bad.safetensors", bytes);
    const std::string text = error_of<DataError>([&] { (void)read_safetensors(path); });
    CHECK(text.find(path.string()) != std::string::npos);
    return text;
  };
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& range) {
    return "{\"w\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range +
           "}}";
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal(""), "shorter than 8 bytes");
  has(refusal(std::string(8, '\xff')), "header claims");
  has(refusal(file_of("{}", 0).substr(0, 9)), "header claims");
  has(refusal(file_of("no json", 0)), "its header");
  has(refusal(file_of("[1]", 0)), "no JSON object");
  has(refusal(file_of(std::string(5000, '['), 0)), "its header");
  has(refusal(file_of(entry("F7", "[2]", "[0,2]"), 2)), "dtype F7, which the format does not know");
  has(refusal(file_of(entry("U8", "[2]", "[0,3]"), 3)), "its shape needs another number");
  has(refusal(file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                      "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                      8)),
      "key 'w' appears twice");
  has(refusal(file_of("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[1],"
                      "\"data_offsets\":[0,4]}}",
                      4)),
      "key 'dtype' appears twice");
  has(refusal(file_of(entry("BF16", "[2]", "[0,2]"), 2)), "larger than the file");
  has(refusal(file_of(entry("BF16", "[1]", "[0,4]"), 4)), "its shape needs another number");
  has(refusal(file_of(entry("F4", "[3]", "[0,2]"), 2)), "its shape needs another number");
  has(refusal(file_of(entry("F6_E2M3", "[3]", "[0,3]"), 3)), "its shape needs another number");
  has(refusal(file_of(entry("F32", "[1]", "[0,8]"), 8)), "its shape needs another number");
  has(refusal(file_of(entry("F32", "[2]", "[0,8]"), 4)), "truncated");
  has(refusal(file_of(entry("F32", "[1]", "[0,4]"), 8)), "the header accounts for 4");
  has(refusal(file_of(entry("F32", "[1]", "[4,8]"), 8)), "expected it to start at 0");
  has(refusal(file_of(entry("F32", "[1]", "[8,4]"), 8)), "bytes 8..4");
  has(refusal(file_of(entry("F32", "[-1]", "[0,4]"), 4)), "natural number");
  has(refusal(file_of(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0)), "larger than");
  has(refusal(file_of(entry("F32", "[1,1,1,1,1,1,2]", "[0,4]"), 4)), "larger than the file");
  has(refusal(file_of(entry("F32", "[1,1,1,1,1,1,2]", "[0,4]"), 8)), "needs another number");
  has(refusal(file_of(entry("F32", "[4611686018427387904,0]", "[0,0]"), 0)), "larger than");
  has(refusal(file_of(entry("F32", "{\"a\":1}", "[0,4]"), 4)), "its shape is no list");
  has(refusal(file_of(entry("F32", "[1]", "[0]"), 4)), "two natural numbers");
  has(refusal(file_of("{\"w\":{\"dtype\":\"F32\"}}", 4)), "its header");
  has(refusal(file_of("{\"__metadata__\":{\"a\":1}}", 0)), "its header");
  has(refusal(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                      "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                      12)),
      "expected it to start at 8");
  has(error_of<DataError>([&] { (void)read_safetensors(folder.path() / "none"); }), "none");
}

TEST_CASE("names from a safetensors file are printable in every refusal, and not endless") {
  const Folder folder;
  const std::string evil = R"(\u001b[2J\u009b\u202e)" + std::string(5000, 'x');
  const auto refusal = [&](const std::string& parts, std::size_t bytes) {
    const auto path = folder.write("bad.safetensors", file_of("{" + parts + "}", bytes));
    return error_of<DataError>([&] { (void)read_safetensors(path); });
  };
  const auto tensor = [&](const std::string& dtype, const std::string& shape,
                          const std::string& range) {
    return "\"" + evil + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + range + "}";
  };
  const std::string all[] = {tensor(evil, "[1]", "[0,4]"),
                             tensor("F32", "[-1]", "[0,4]"),
                             tensor("F32", "[1]", "[0]"),
                             tensor("F32", "[1]", "[4,8]"),
                             tensor("F32", "[1]", "[0,8]"),
                             tensor("F32", "[9]", "[0,4]"),
                             tensor("F32", "[0]", "[0,4]"),
                             tensor("F32", "{}", "[0,4]"),
                             tensor("F32", "[1,1,1,1,1,1,2]", "[0,4]"),
                             "\"" + evil + "\":1,\"" + evil + "\":2"};
  for (const std::string& parts : all) {
    const std::string error = refusal(parts, 4);
    CAPTURE(error);
    CHECK(error.find("bad.safetensors: not a readable safetensors file: ") != std::string::npos);
    CHECK(error.find("?[2J\\u009b\\u202ex") != std::string::npos);
    CHECK(data::printable_whole(error) == error);
    CHECK(error.size() < 1000);
  }
}

TEST_CASE("numbers of other programs are taken as ours: f16 and bf16 widened, i64 narrowed") {
  const Folder folder;
  const auto read = [&](const char* dtype, const std::string& shape, const std::string& bytes) {
    const std::string header = "{\"w\":{\"dtype\":\"" + std::string(dtype) +
                               "\",\"shape\":" + shape + ",\"data_offsets\":[0," +
                               std::to_string(bytes.size()) + "]}}";
    const std::string file = file_of(header, 0) + bytes;
    return *read_safetensors(folder.write("w.safetensors", file)).find("w");
  };
  using namespace std::string_literals;
  // 1.5, -2, the smallest normal and subnormal numbers, the largest, zero, minus infinity.
  const Tensor half =
      read("F16", "[7]", "\x00\x3E\x00\xC0\x00\x04\x01\x00\xFF\x7B\x00\x00\x00\xFC"s);
  CHECK(half.dtype() == DType::f32);
  CHECK(half.to_vector() == std::vector<double>{1.5, -2, std::ldexp(1, -14), std::ldexp(1, -24),
                                                65504, 0,
                                                -std::numeric_limits<double>::infinity()});
  CHECK(std::isnan(read("F16", "[1]", "\x01\x7C"s).item()));
  const Tensor brain = read("BF16", "[3]", "\xC0\x3F\x00\xC0\x80\x00"s);
  CHECK(brain.dtype() == DType::f32);
  CHECK(brain.to_vector() == std::vector<double>{1.5, -2, std::ldexp(1, -126)});
  const Tensor whole = read("I64", "[2]", "\x07\0\0\0\0\0\0\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  CHECK(whole.dtype() == DType::i32);
  CHECK(whole.to_vector() == std::vector<double>{7, -2});
}

TEST_CASE("one flipped bit anywhere in the data is noticed") {
  const Folder folder;
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"w", numbers({64}, DType::f32, 1)}}, {});
  const std::string good = read_file(path);
  for (const std::size_t back : {1u, 100u, 256u}) {
    std::string bad = good;
    bad[bad.size() - back] = static_cast<char>(bad[bad.size() - back] ^ 0x10);
    folder.write("x.safetensors", bad);
    CHECK(error_of<DataError>([&] { (void)read_safetensors(path); }).find("corrupted") !=
          std::string::npos);
  }
}

TEST_CASE("tensors that are not wanted are left out, but under the checksum") {
  const Folder folder;
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path,
                    {{"a", numbers({2, 3}, DType::f32, 1)},
                     {"b", numbers({6}, DType::f64, 7)},
                     {"c", numbers({5}, DType::i32, 3)}},
                    {});
  const auto read = [&] {
    return read_safetensors(path, [](const std::string& name) { return name == "b"; });
  };
  const SafetensorsFile file = read();
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.find("b")->to_vector() == numbers({6}, DType::f64, 7).to_vector());
  std::string bytes = read_file(path);
  bytes.back() ^= 1;  // of c
  folder.write("x.safetensors", bytes);
  CHECK(error_of<DataError>([&] { (void)read(); }).find("corrupted") != std::string::npos);
}

TEST_CASE(
    "what the header says of tensors, and metadata, are under the checksum, too; former files had "
    "less") {
  const Folder folder;
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path,
                    {{"a", numbers({2, 3}, DType::f32, 1)},
                     {"none", numbers({0}, DType::f32, 1)},
                     {"b", numbers({6}, DType::f32, 7)}},
                    {{"state", "step 4"}});
  const std::string good = read_file(path);
  CHECK(read_safetensors(path).tensors.size() == 3);
  const auto with = [&](const std::string& part, const std::string& other) {
    std::string changed = good;
    REQUIRE(changed.find(part) != changed.npos);
    changed.replace(changed.find(part), part.size(), other);
    folder.write("x.safetensors", changed);
    return error_of<DataError>([&] { (void)read_safetensors(path); });
  };
  for (const auto& [part, other] : {std::pair("\"F32\",\"shape\":[2,3]", "\"I32\",\"shape\":[2,3]"),
                                    {"[2,3]", "[3,2]"},
                                    {"\"a\"", "\"c\""},
                                    {"\"b\"", "\"a2\""}}) {
    if (std::string(part).size() != std::string(other).size()) continue;
    CAPTURE(part);
    CHECK(with(part, other).find("corrupted") != std::string::npos);
  }
  const std::string sum =
      read_safetensors(folder.write("x.safetensors", good)).metadata.at("skytape.checksum");
  REQUIRE(sum.size() == 48);
  CHECK(with("step 4", "step 5").find("its metadata do not match their checksum") !=
        std::string::npos);
  for (const std::size_t kept : {16U, 32U}) {
    CHECK(with(sum.substr(kept) + "\"", "\"" + std::string(48 - kept, ' ')) == "");
  }
  CHECK(with("\"" + sum, std::string(32, ' ') + "\"" + sum.substr(0, 8) + "00000000")
            .find("corrupted") != std::string::npos);
}

TEST_CASE("tensors of types that we have no use for are named and not read") {
  const Folder folder;
  // Bytes of four numbers: those of F4 and F6 are packed.
  for (const auto& [dtype, bytes] : {std::pair("BOOL", 4),
                                     {"U8", 4},
                                     {"I8", 4},
                                     {"I16", 8},
                                     {"U16", 8},
                                     {"U32", 16},
                                     {"U64", 32},
                                     {"C64", 32},
                                     {"F8_E4M3", 4},
                                     {"F8_E5M2", 4},
                                     {"F8_E8M0", 4},
                                     {"F8_E4M3FNUZ", 4},
                                     {"F8_E5M2FNUZ", 4},
                                     {"F6_E2M3", 3},
                                     {"F6_E3M2", 3},
                                     {"F4", 2}}) {
    CAPTURE(dtype);
    const std::string end = std::to_string(bytes);
    const std::string file = file_of(
        "{\"m\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[4],\"data_offsets\":[0," +
            end + "]},\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" + end + "," +
            std::to_string(bytes + 4) + "]}}",
        static_cast<std::size_t>(bytes + 4));
    const SafetensorsFile read = read_safetensors(folder.write("x.safetensors", file));
    CHECK(read.find("m") == nullptr);
    CHECK(read.find("w") != nullptr);
    REQUIRE(read.foreign.size() == 1);
    CHECK(read.foreign[0].name == "m");
    CHECK(read.foreign_kind("m") == dtype);
    CHECK(read.foreign_kind("w").empty());
  }
}

TEST_CASE("a tensor with too many axes or too large integers does not refuse the others") {
  const Folder folder;
  const auto read = [&](const char* dtype, const char* shape, const std::string& bytes) {
    const std::string end = std::to_string(bytes.size());
    const std::string header = R"({"m":{"dtype":")" + std::string(dtype) + R"(","shape":)" + shape +
                               R"(,"data_offsets":[0,)" + end +
                               R"(]},"w":{"dtype":"F32","shape":[1],"data_offsets":[)" + end + "," +
                               std::to_string(bytes.size() + 4) + "]}}";
    const std::string file = file_of(header, 0) + bytes + std::string("\0\0\xC0\x3F", 4);
    return read_safetensors(folder.write("x.safetensors", file));
  };
  using namespace std::string_literals;
  const std::string wide = "\7\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\7\0\0\0\0\0\0\0"s;
  for (const auto& [dtype, shape, bytes, kind] :
       {std::tuple("F32", "[1,1,1,2,1,1,1]", std::string(8, '\1'), "F32 with 7 axes"),
        {"BOOL", "[1,1,1,2,1,1,1,1,1]", "\1\1"s, "BOOL with 9 axes"},
        {"I64", "[3]", wide, "I64 with 4294967296, beyond 32 bits"}}) {
    CAPTURE(kind);
    const SafetensorsFile file = read(dtype, shape, bytes);
    CHECK(file.find("m") == nullptr);
    CHECK(file.foreign_kind("m") == kind);
    REQUIRE(file.find("w") != nullptr);
    CHECK(file.find("w")->to_vector() == std::vector<double>{1.5});
  }
}

TEST_CASE("a full disk leaves the file that was there, names it, and nothing half-written") {
  const Folder folder;
  const auto path = folder.path() / "last.safetensors";
  write_safetensors(path, {{"w", numbers({4}, DType::f32, 1)}}, {});
  const std::string before = read_file(path);

  // A limit on file sizes stands in for a full disk: the write itself fails.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{4096, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string text = error_of<Error>([&] {
    write_safetensors(path, {{"w", numbers({100000}, DType::f32, 1)}}, {});
  });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);

  CHECK(text.find(path.string()) != std::string::npos);
  CHECK(read_file(path) == before);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}
