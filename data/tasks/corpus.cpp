// Texts without labels, for language models: the user's files, or IMDb's reviews.
#include <fmt/format.h>

#include "data/cache/cache.hpp"
#include "data/custom/documents.hpp"
#include "data/custom/encoding.hpp"
#include "data/custom/imdb.hpp"
#include "data/files/json.hpp"
#include "data/random.hpp"
#include "data/tasks/build.hpp"
#include "data/tasks/tokens.hpp"
#include "data/tokenisers/units.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

/// Each block of this many documents, in the order of the files, gives one to dev and one to test.
constexpr int kDocumentsOfBlock = 20;
constexpr std::size_t kLearnsFrom = 64
                                    << 20;  // bytes of training text: more teaches no more pieces

/// The split of document number `i`, by its place in kSplits.
std::size_t split_of(std::int64_t i, std::uint64_t seed) {
  const std::int64_t block = i / kDocumentsOfBlock;
  const Permutation order(kDocumentsOfBlock, seed, static_cast<std::uint64_t>(block));
  const std::uint64_t place = order(static_cast<std::uint64_t>(i % kDocumentsOfBlock));
  return place == 0 ? 1 : place == 1 ? 2 : 0;
}

/// The totals of a walk over the files of a corpus.
struct Walk {
  EncodingCheck encoding;
  std::int64_t files = 0, documents = 0, left_out = 0;
  Sha256 contents = {};  // of all documents
};

/// Passes every document to `visit`, with its split.
Walk visit_documents(const TaskInfo& task, const TokenChoice& choice, const PrepareOptions& options,
                     const std::function<void(std::size_t split, const std::string& text,
                                              const std::string& place)>& visit) {
  // Pieces of words are made of characters; bytes may be anything.
  Walk walk{EncodingCheck(choice.kind != "bytes")};
  // A single file may be called as it likes.
  fs::path single = options.from.filename();
  if (single.extension() == ".gz") single = single.stem();
  const auto wanted = [&](const SourceFile& file) {
    ReviewName review;
    const std::string_view name = leaf(file.path), folder = parent(file.path);
    if (parse_review_name(file.path, review) && !review.train) {
      ++walk.left_out;
      return false;
    }
    const bool addresses = name.starts_with("urls_") && (folder == "train" || folder == "test");
    return !addresses && (name.ends_with(".txt") || name == single);
  };
  visit_files(options.from, wanted, [&](const SourceFile& file, ByteStream& stream) {
    ++walk.files;
    read_documents(stream, file.shown, [&](const std::string& text, const std::string& place) {
      walk.encoding.see(text, place);
      walk.contents.update(as_bytes(text));
      walk.contents.update(as_bytes("\n"));
      visit(split_of(walk.documents, options.data_seed), text, place);
      if (++walk.documents % 1000 == 0) {
        options.progress("reading documents", walk.documents, 0);
      }
    });
  });
  if (walk.documents < kDocumentsOfBlock) {
    throw DataError(fmt::format(
        "{}: {}: {} documents in {} files, expected at least {}: a blank line ends a document; in "
        "a file without blank lines each line is one; folders and archives need files *.txt",
        task.name, options.from.string(), walk.documents, walk.files, kDocumentsOfBlock));
  }
  return walk;
}

/// Cuts the tokens of one document after the other into sequences of equal length.
class Packer {
 public:
  Packer(CacheWriter& out, std::int64_t length, bool wide)
      : out_(out), length_(static_cast<std::size_t>(length)), wide_(wide) {}

  void add(const std::vector<std::int32_t>& document, std::int32_t end) {
    for (const std::int32_t token : document) add(token);
    add(end);
  }

  /// The rest, which is shorter.
  void finish() {
    if (tokens_.empty()) return;
    if (wide_) {
      out_.add(0, std::span<const std::uint16_t>(tokens_));
    } else {
      out_.add(0, std::vector<std::uint8_t>(tokens_.begin(), tokens_.end()));
    }
    tokens_.clear();
  }

 private:
  void add(std::int32_t token) {
    tokens_.push_back(static_cast<std::uint16_t>(token));
    if (tokens_.size() == length_) finish();
  }

  CacheWriter& out_;
  std::size_t length_;
  bool wide_;
  std::vector<std::uint16_t> tokens_;
};

/// Learns from the front of the training split.
std::shared_ptr<const Vocabulary> learn(const TaskInfo& task, const TokenChoice& choice,
                                        const PrepareOptions& options, CacheSet& set) {
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  bool all = true;
  (void)visit_documents(task, choice, options,
                        [&](std::size_t split, const std::string& text, const std::string&) {
                          if (split != 0) return;
                          all = bytes + text.size() <= kLearnsFrom;
                          if (!all) return;
                          bytes += text.size();
                          texts.push_back(text);
                        });
  if (!all) {
    options.warn(fmt::format("the pieces are learnt from the first {} MB of training text",
                             kLearnsFrom >> 20));
  }
  return learn_vocabulary(choice, options, texts, set);
}

/// Reads the documents (read_documents) of a file, or of the .txt files of a folder or an archive.
/// Each split is one long sequence, its documents with the end of a text between them, cut into
/// sequences of `options.length` tokens. IMDb's test reviews stay out, and with them its lists of
/// addresses. DataError for a corpus with fewer documents than a block has.
void build_corpus(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  if (const std::string flag = flag_of_rows(options); !flag.empty()) {
    throw UsageError(flag + ": a corpus has no rows, and no columns");
  }
  const TokenChoice choice = chosen_tokens(options);
  if (find_token_unit(choice.kind)) {
    throw UsageError(
        fmt::format("--tokens: a corpus has no {}, which know no end of a text; expected bytes, "
                    "sentencepiece:FILE, wordpiece:FILE, bpe:FOLDER or unigram:FILE",
                    choice.kind));
  }
  std::shared_ptr<const Vocabulary> vocabulary = given_vocabulary(choice, options);
  if (!options.learn_tokens.empty()) vocabulary = learn(task, choice, options, set);
  const std::int32_t end = vocabulary ? vocabulary->end_of_text() : '\n';
  if (end < 0) {
    throw DataError(fmt::format(
        "{}: no token for the end of a text, which a corpus needs between two; expected </s>, "
        "<|endoftext|> or [SEP]",
        choice.from.string()));
  }
  set.classes = 1;
  set.token_bytes = vocabulary ? 2 : 1;
  std::vector<Packer> packers;
  for (const char* split : kSplits) {
    packers.emplace_back(set.split(split), options.length, vocabulary != nullptr);
  }
  Walk walk = visit_documents(
      task, choice, options,
      [&](std::size_t split, const std::string& text, const std::string& place) {
        const auto bytes = as_bytes(text);
        packers[split].add(vocabulary ? vocabulary->encode(text, place)
                                      : std::vector<std::int32_t>(bytes.begin(), bytes.end()),
                           end);
      });
  for (Packer& packer : packers) packer.finish();
  if (const std::string text = walk.encoding.warning(); !text.empty()) options.warn(text);
  if (walk.left_out > 0) {
    options.warn(fmt::format("{} of IMDb's test reviews are left out", walk.left_out));
  }
  Json provenance = {{"how", "read"},
                     {"files", walk.files},
                     {"documents", walk.documents},
                     {"left_out", walk.left_out},
                     {"sha256_contents", walk.contents.hex()},
                     {"length", options.length},
                     {"data_seed", options.data_seed}};
  if (vocabulary) put_vocabulary(*vocabulary, provenance);
  set.provenance = json_text(provenance, {.ascii = true});
}

}  // namespace

TaskInfo corpus_task() {
  return {.name = "corpus",
          .description = "your own texts without labels, to pre-train on",
          .tokens = TokenKind::bytes,
          .classes = 0,
          .max_length = 512,
          .nominal_length = 512,
          .token_offset = 1,
          .build = build_corpus};
}

}  // namespace skytape::data
