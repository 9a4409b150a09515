#include "data/tokenisers/sentencepiece.hpp"

#include <fmt/format.h>

#include <charconv>

#include "data/files/digest.hpp"
#include "data/files/source.hpp"
#include "data/tokenisers/files.hpp"
#include "data/unicode/normaliser.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

#ifdef SKYTAPE_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#endif

namespace skytape::data {
namespace {

constexpr std::int64_t kFewestPieces = 16, kMostPieces = kMostStored;
constexpr const char* kExpected = "unigram:NUMBER or bpe:NUMBER";

/// Bytes from hexadecimal digits, as provenance holds a model. DataError if they are none.
std::string from_hex(std::string_view digits) {
  std::string bytes(digits.size() / 2, '\0');
  bool whole = digits.size() % 2 == 0;
  for (std::size_t i = 0; i < bytes.size() && whole; ++i) {
    const char* const at = digits.data() + 2 * i;
    std::uint8_t byte = 0;
    whole = std::from_chars(at, at + 2, byte, 16).ptr == at + 2;
    bytes[i] = static_cast<char>(byte);
  }
  if (!whole) throw DataError("provenance of the data: the model is not in hexadecimal digits");
  return bytes;
}

}  // namespace

SentencePieceTraining parse_sentencepiece_training(const std::string& text) {
  const std::size_t colon = text.find(':');
  SentencePieceTraining training{text.substr(0, colon), 0};
  if (colon != text.npos) {
    training.pieces = number_in<std::int64_t>(std::string_view(text).substr(colon + 1)).value_or(0);
  }
  const bool known = training.kind == "unigram" || training.kind == "bpe";
  if (!known || training.pieces < kFewestPieces || training.pieces > kMostPieces) {
    throw UsageError(fmt::format("--learn-tokens: expected {} with {}..{}, got '{}'", kExpected,
                                 kFewestPieces, kMostPieces, text));
  }
  return training;
}

std::shared_ptr<const SentencePiece> read_sentencepiece(const std::filesystem::path& file) {
  const std::vector<std::uint8_t> bytes = read_all(*open_file(file), file.string(), kLargestFile);
  return std::make_shared<SentencePiece>(std::string(bytes.begin(), bytes.end()), file.string());
}

std::shared_ptr<const SentencePiece> sentencepiece_in(const Json& provenance) {
  return std::make_shared<SentencePiece>(from_hex(provenance.at("model").get<std::string>()),
                                         "provenance of the data");
}

#ifdef SKYTAPE_HAVE_SENTENCEPIECE
struct SentencePiece::Library {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

/// Most characters without a space that are learnt from in one piece: the library ends the program
/// at 65,536, and one character may become 18 in its normal form.
constexpr std::size_t kLongestRun = 2048;

/// Texts that the trainer can take: it ends the program where nothing is left of all of them.
std::vector<std::string> for_learning(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    std::string part;
    bool visible = false;
    std::size_t run = 0;
    const auto end_part = [&] {
      if (visible) parts.push_back(part);
      part.clear();
      visible = false;
      run = 0;
    };
    for (const char32_t c : decode_utf8(text, "training text")) {
      const bool space = is_space(c);
      run = space ? 0 : run + 1;
      visible = visible || (!space && !is_control(c) && !is_nonspacing_mark(c));
      append_utf8(part, c);
      if (run == kLongestRun) end_part();
    }
    end_part();
  }
  return parts;
}

/// Passes number and bytes of each field of a message of Protocol Buffers that is a text, bytes or
/// a message. Returns false where the message is broken.
template <class Visit> bool visit_fields(std::string_view message, const Visit& visit) {
  const auto varint = [&](std::uint64_t& value) {  // seven bits a byte, the low ones first
    value = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(message.front());
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (!message.empty()) {
    std::uint64_t key = 0, size = 0;
    if (!varint(key)) return false;
    const std::uint64_t kind = key & 7;
    if (kind == 0 && !varint(size)) return false;  // a number, not a size
    if (kind == 0) continue;
    if (kind == 1 || kind == 5) {
      size = kind == 1 ? 8 : 4;
    } else if (kind != 2 || !varint(size)) {
      return false;
    }
    if (size > message.size()) return false;
    if (kind == 2) visit(key >> 3, message.substr(0, size));
    message.remove_prefix(size);
  }
  return true;
}

/// Refuses a model whose tables of normal forms would let the library read beyond their ends.
void require_sound_charsmaps(const std::string& model, const std::string& source) {
  constexpr std::uint64_t kNormaliser = 3, kDenormaliser = 5, kCharsmap = 2;  // numbers of fields
  bool whole = true;
  const bool read = visit_fields(model, [&](std::uint64_t field, std::string_view spec) {
    if (field != kNormaliser && field != kDenormaliser) return;
    whole = visit_fields(spec,
                         [&](std::uint64_t part, std::string_view bytes) {
                           if (part != kCharsmap || bytes.empty()) return;
                           require_sound_charsmap(std::string(bytes), source);
                         }) &&
            whole;
  });
  if (!read || !whole) throw DataError(fmt::format("{}: not a model of SentencePiece", source));
}

/// Returns the library's message, without the place in its source.
std::string reason_of(const sentencepiece::util::Status& status) {
  const std::string text(status.message());
  const std::size_t place = text.rfind("] ");
  return place == text.npos ? text : text.substr(place + 2);
}

/// Texts, one after the other, as the trainer asks for them.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& texts) : texts_(texts) {}
  bool done() const override { return at_ == texts_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return texts_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& texts_;
  std::size_t at_ = 0;
};

}  // namespace

bool has_sentencepiece() { return true; }

SentencePiece::SentencePiece(std::string model, const std::string& source)
    : library_(std::make_unique<Library>()), model_(std::move(model)) {
  require_sound_charsmaps(model_, source);
  const auto status = library_->processor.LoadFromSerializedProto(model_);
  if (!status.ok() || size() == 0) {
    throw DataError(fmt::format("{}: not a model of SentencePiece{}", source,
                                status.ok() ? ": no pieces" : ""));
  }
}

SentencePiece::~SentencePiece() = default;

std::int64_t SentencePiece::size() const { return library_->processor.GetPieceSize(); }

std::vector<std::int32_t> SentencePiece::encode(std::string_view text,
                                                const std::string& place) const {
  (void)decode_utf8(text, place);  // the library would replace what is no UTF-8
  std::vector<int> tokens;
  // From its parts: release 0.1.96 (Ubuntu 22.04) has a string_view of its own.
  const auto status = library_->processor.Encode({text.data(), text.size()}, &tokens);
  if (!status.ok()) {
    throw DataError(fmt::format("{}: SentencePiece: {}", place, reason_of(status)));
  }
  return tokens;
}

std::string SentencePiece::entry(std::int32_t token) const {
  ENSURE(token >= 0 && token < size(), "sentencepiece: token ", token, " of ", size());
  return library_->processor.IdToPiece(token);
}

std::string SentencePiece::text_of(std::span<const std::int32_t> tokens) const {
  return library_->processor.DecodeIds({tokens.begin(), tokens.end()});
}

std::int32_t SentencePiece::end_of_text() const { return library_->processor.eos_id(); }

void SentencePiece::put(Json& provenance) const {
  std::vector<std::string> entries;
  for (std::int32_t i = 0; i < size(); ++i) entries.push_back(entry(i));
  provenance["vocabulary"] = entries;
  provenance["model"] = to_hex(as_bytes(model_));
}

std::string learn_sentencepiece(const SentencePieceTraining& training,
                                const std::vector<std::string>& texts) {
  const std::vector<std::string> parts = for_learning(texts);
  if (parts.empty()) {
    throw DataError(
        fmt::format("--learn-tokens: nothing to learn from in {} training texts", texts.size()));
  }
  Sentences sentences(parts);
  std::string model;
  // A piece for the end of a text, none for its beginning and for padding, which a set does not
  // store. A text may be as long as it likes; few texts give fewer pieces than asked for.
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"model_type", training.kind},
                                                  {"vocab_size", std::to_string(training.pieces)},
                                                  {"hard_vocab_limit", "false"},
                                                  {"bos_id", "-1"},
                                                  {"eos_id", "1"},
                                                  {"pad_id", "-1"},
                                                  {"max_sentence_length", std::to_string(kMaxLine)},
                                                  {"minloglevel", "2"}},
                                                 &sentences, &model);
  if (!status.ok()) {
    throw DataError(
        fmt::format("--learn-tokens: SentencePiece cannot learn {} {} pieces from {} "
                    "training texts: {}",
                    training.pieces, training.kind, texts.size(), reason_of(status)));
  }
  return model;
}
#else
namespace {

[[noreturn]] void refuse() {
  throw DataError(
      "this build has no SentencePiece: install libsentencepiece-dev and type make, or take "
      "--tokens bytes, words or integers");
}

}  // namespace

struct SentencePiece::Library {};

bool has_sentencepiece() { return false; }
SentencePiece::SentencePiece(std::string, const std::string&) { refuse(); }
SentencePiece::~SentencePiece() = default;
std::int64_t SentencePiece::size() const { refuse(); }
std::vector<std::int32_t> SentencePiece::encode(std::string_view, const std::string&) const {
  refuse();
}
std::string SentencePiece::entry(std::int32_t) const { refuse(); }
std::string SentencePiece::text_of(std::span<const std::int32_t>) const { refuse(); }
std::int32_t SentencePiece::end_of_text() const { refuse(); }
void SentencePiece::put(Json&) const { refuse(); }
std::string learn_sentencepiece(const SentencePieceTraining&, const std::vector<std::string>&) {
  refuse();
}
#endif

}  // namespace skytape::data
