// libFuzzer targets for every reader of foreign files; one binary per target, chosen by the macro
// FUZZ_TARGET: listops, records, pairs, images, metadata, png, cache, archive.
//
// A DataError or Error is the expected answer to a broken file; anything else that escapes, reads
// outside a buffer or never ends is a finding.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "data/cache/cache.hpp"
#include "data/files/png.hpp"
#include "data/files/source.hpp"
#include "data/own/records.hpp"
#include "data/tasks/image.hpp"
#include "data/tasks/listops.hpp"
#include "data/tasks/pathfinder_files.hpp"
#include "data/tasks/retrieval.hpp"
#include "data/tasks/text.hpp"
#include "tensor/core/error.hpp"

#ifndef FUZZ_TARGET
#define FUZZ_TARGET listops
#endif

namespace {

using namespace skytape;
using namespace skytape::data;
using Bytes = std::span<const uint8_t>;

/// A file of this process that holds the input.
std::filesystem::path as_file(Bytes bytes, const char* ending) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("skytape-fuzz-" + std::to_string(::getpid()) + ending);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return path;
}

[[maybe_unused]] void listops(Bytes bytes) {
  CacheWriter out(
      std::filesystem::temp_directory_path() / ("skytape-fuzz-" + std::to_string(::getpid())), 1);
  read_listops(*open_memory(bytes), "fuzz", out, {});
  (void)evaluate_listops(bytes);
  (void)listops_text(bytes);
}

[[maybe_unused]] void records(Bytes bytes) {
  for (const RecordFormat format : {RecordFormat::tsv, RecordFormat::csv, RecordFormat::jsonl}) {
    try {
      read_records(*open_memory(bytes), "fuzz", {format}, [](const Record&) {});
    } catch (const DataError&) {
    }
  }
}

[[maybe_unused]] void pairs(Bytes bytes) {
  for (const bool with_texts : {false, true}) {
    try {
      read_pairs(*open_memory(bytes), "fuzz", with_texts, [](const RetrievalLine&) {});
    } catch (const DataError&) {
    }
  }
}

[[maybe_unused]] void images(Bytes bytes) {
  (void)read_images(*open_memory(bytes), "fuzz", !bytes.empty() && bytes[0] % 2);
}

[[maybe_unused]] void metadata(Bytes bytes) { (void)read_pathfinder_metadata(bytes, "fuzz"); }

[[maybe_unused]] void png(Bytes bytes) { (void)decode_png(bytes, "fuzz"); }

[[maybe_unused]] void cache(Bytes bytes) {
  const auto file = CacheFile::open(as_file(bytes, ".skydata"));
  for (uint64_t i = 0; i < file->header().examples; ++i)
    (void)file->tokens(static_cast<int64_t>(i), 0);
}

[[maybe_unused]] void archive(Bytes bytes) {
  ReviewName name;
  visit_files(
      as_file(bytes, ".tar.gz"),
      [&](const SourceFile& file) { return parse_review_name(file.path, name) || true; },
      [](const SourceFile& file, ByteStream& stream) {
        (void)read_all(stream, file.shown, 1 << 20);
      });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    FUZZ_TARGET({data, size});
  } catch (const Error&) {
  }
  return 0;
}
