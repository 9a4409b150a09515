// libFuzzer on every reader of foreign files. FUZZ_READER in the environment names the reader, one
// of kReaders at the end.
//
// A DataError or Error is the expected answer to a broken file; anything else that escapes, reads
// outside a buffer or never ends is a finding.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "data/cache/cache.hpp"
#include "data/custom/glue.hpp"
#include "data/custom/imdb.hpp"
#include "data/custom/records.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/png.hpp"
#include "data/files/source.hpp"
#include "data/tasks/image.hpp"
#include "data/tasks/listops.hpp"
#include "data/tasks/pathfinder_files.hpp"
#include "data/tasks/retrieval.hpp"
#include "data/tokenisers/byte_level_bpe.hpp"
#include "data/tokenisers/files.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "data/tokenisers/wordpiece.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"
#include "train/formats/npy.hpp"
#include "train/formats/safetensors.hpp"

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

void listops(Bytes bytes) {
  CacheWriter out(
      std::filesystem::temp_directory_path() / ("skytape-fuzz-" + std::to_string(::getpid())), 1);
  read_listops(*open_memory(bytes), "fuzz", out, {});
  (void)evaluate_listops(bytes);
  (void)listops_text(bytes);
}

void records(Bytes bytes) {
  for (const RecordFormat format : {RecordFormat::tsv, RecordFormat::csv, RecordFormat::jsonl}) {
    try {
      read_records(*open_memory(bytes), "fuzz", {format}, [](const Record&) {});
    } catch (const DataError&) {
    }
  }
  for (const std::string header : {"sentence\tlabel", "index\tquestion\tsentence\tlabel",
                                   "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"}) {
    const std::string file = header + "\n" + std::string(bytes.begin(), bytes.end());
    try {
      (void)read_glue(*open_memory(as_bytes(file)), "fuzz", *find_glue_layout(header),
                      [](const Record&) {});
    } catch (const DataError&) {
    }
  }
}

void pairs(Bytes bytes) {
  for (const bool with_texts : {false, true}) {
    try {
      read_pairs(*open_memory(bytes), "fuzz", with_texts, [](const RetrievalLine&) {});
    } catch (const DataError&) {
    }
  }
}

void images(Bytes bytes) {
  (void)read_images(*open_memory(bytes), "fuzz", !bytes.empty() && bytes[0] % 2);
}

void metadata(Bytes bytes) { (void)read_pathfinder_metadata(bytes, "fuzz"); }

void png(Bytes bytes) { (void)decode_png(bytes, "fuzz"); }

void cache(Bytes bytes) {
  const auto file = CacheFile::open(as_file(bytes, ".skydata"));
  for (uint64_t i = 0; i < file->header().examples; ++i)
    (void)file->tokens(static_cast<int64_t>(i), 0);
}

void archive(Bytes bytes) {
  ReviewName name;
  visit_files(
      as_file(bytes, ".tar.gz"),
      [&](const SourceFile& file) { return parse_review_name(file.path, name) || true; },
      [](const SourceFile& file, ByteStream& stream) {
        (void)read_all(stream, file.shown, 1 << 20);
      });
}

/// The front of the input up to its first zero byte, and what is behind it.
std::pair<Bytes, std::string> in_two(Bytes bytes) {
  const auto zero = std::find(bytes.begin(), bytes.end(), 0);
  const auto front = static_cast<size_t>(zero - bytes.begin());
  const Bytes back = zero == bytes.end() ? Bytes() : bytes.subspan(front + 1);
  return {bytes.first(front), {back.begin(), back.end()}};
}

void wordpiece(Bytes bytes) {
  const auto [file, text] = in_two(bytes);
  for (const char* entries : {"", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"}) {
    std::string vocabulary = entries;
    vocabulary.append(file.begin(), file.end());
    try {
      const auto pieces = read_wordpiece(*open_memory(as_bytes(vocabulary)), {}, "fuzz");
      (void)pieces->text_of(pieces->encode(text, "fuzz"));
    } catch (const DataError&) {
    }
  }
}

void bpe(Bytes bytes) {
  static const std::vector<std::string> kBytes = [] {
    std::vector<std::string> entries;
    for (char32_t byte = 0, next = 256; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      append_utf8(entries.emplace_back(), prints ? byte : next++);
    }
    return entries;
  }();
  const auto [file, text] = in_two(bytes);
  try {
    (void)entries_in(parse_json({reinterpret_cast<const char*>(file.data()), file.size()}), "fuzz");
  } catch (const JsonError&) {
  } catch (const DataError&) {
  }
  ByteLevelBpeParts parts{kBytes, read_merges(*open_memory(file), "fuzz"), text.size() % 2 == 1};
  for (const std::string& merge : parts.merges) {
    const auto blank = merge.find(' ');
    parts.entries.push_back(merge.substr(0, blank) + merge.substr(blank + 1));
  }
  const ByteLevelBpe pieces(std::move(parts), "fuzz");
  if (pieces.text_of(pieces.encode(text, "fuzz")).size() < text.size()) std::abort();
}

void sentencepiece(Bytes bytes) {
  const auto pieces = read_vocabulary({"sentencepiece", as_file(bytes, ".model")});
  (void)pieces->text_of(pieces->encode("a ship, a lamp", "fuzz"));
}

void unigram(Bytes bytes) {
  const auto pieces = read_vocabulary({"unigram", as_file(bytes, ".json")});
  (void)pieces->text_of(pieces->encode("a ship, a lamp", "fuzz"));
}

void npy(Bytes bytes) { (void)read_npy(as_file(bytes, ".npy")); }

void safetensors(Bytes bytes) { (void)train::read_safetensors(as_file(bytes, ".safetensors")); }

constexpr std::pair<std::string_view, void (*)(Bytes)> kReaders[] = {
    {"listops", listops}, {"records", records},        {"pairs", pairs},
    {"images", images},   {"metadata", metadata},      {"png", png},
    {"cache", cache},     {"archive", archive},        {"wordpiece", wordpiece},
    {"bpe", bpe},         {"unigram", unigram},        {"sentencepiece", sentencepiece},
    {"npy", npy},         {"safetensors", safetensors}};

/// Returns the reader that the environment names; without one that exists the program ends.
auto chosen() {
  const char* name = std::getenv("FUZZ_READER");
  for (const auto& [known, reader] : kReaders) {
    if (name && name == known) return reader;
  }
  std::fprintf(stderr, "fuzz: FUZZ_READER: expected a reader of readers.cpp, got '%s'\n",
               name ? name : "");
  std::exit(2);
}

}  // namespace

/// No reader fills a tensor: the kernels, which Tensor::zeros would bring along, are not linked.
void skytape::Tensor::fill(double) { std::abort(); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto reader = chosen();
  try {
    reader({data, size});
  } catch (const Error&) {
  }
  return 0;
}
