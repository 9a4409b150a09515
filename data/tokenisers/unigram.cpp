#include "data/tokenisers/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/files/printable.hpp"
#include "data/tokenisers/files.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr char32_t kBlank = U'▁';
constexpr double kUnknownPenalty =
    10;  // below the least probable piece, as in SentencePiece's code

}  // namespace

Unigram::Unigram(UnigramParts parts, const std::string& source)
    : ListedVocabulary(std::move(parts.entries), std::move(parts.added),
                       parts.made_of.at("model").at("scores").size()),
      made_of_(std::move(parts.made_of)),
      normaliser_(made_of_.at("normalizer"), source) {
  read_cuts(made_of_.at("pre_tokenizer"), source);
  const Json& model = made_of_.at("model");
  scores_ = model.at("scores").get<std::vector<double>>();
  const auto pieces = std::ssize(scores_);
  if (pieces == 0) {
    throw DataError(
        fmt::format("{}: an empty vocabulary, expected pieces and their scores", source));
  }
  if (pieces > size()) {
    throw DataError(fmt::format("{}: {} scores of {} entries", source, pieces, size()));
  }
  for (std::int32_t i = 0; i < pieces; ++i) {
    longest_ = std::max(longest_, decode_utf8(entry(i), source).size());
  }
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  const Json& unknown = member(model, "unk_id");
  if (!unknown.is_null()) {
    const bool fits = unknown.is_number_unsigned() && unknown.get<std::uint64_t>() < scores_.size();
    if (!fits) refuse_part(source, "model.unk_id", "the number of a piece", unknown);
    unknown_ = static_cast<std::int32_t>(unknown.get<std::int64_t>());
  }
  if (flag_in(model, "byte_fallback", false, source, "model")) {
    for (int byte = 0; byte < 256; ++byte) {
      bytes_.push_back(piece_of(fmt::format("<0x{:02X}>", byte)));
    }
  }
  seek({}, source);
}

/// Metaspace, with WhitespaceSplit before it or without: all that Unigram's files ask for.
void Unigram::read_cuts(const Json& pre_tokenizer, const std::string& source) {
  if (pre_tokenizer.is_null()) return;
  const auto flag = [&](const char* key) {
    return flag_in(pre_tokenizer, key, true, source, "pre_tokenizer");
  };
  const Json& type = member(pre_tokenizer, "type");
  if (type == "Sequence") {
    const Json& parts = member(pre_tokenizer, "pretokenizers");
    if (!parts.is_array()) refuse_part(source, "pre_tokenizer.pretokenizers", "a list", parts);
    for (const Json& part : parts) read_cuts(part, source);
  } else if (type == "WhitespaceSplit" && !cuts_.blanks) {
    cuts_.at_spaces = true;
  } else if (type == "Metaspace" && !cuts_.blanks) {
    const Json& replacement = member(pre_tokenizer, "replacement");
    if (!replacement.is_null() && replacement != "▁") {
      refuse_part(source, "pre_tokenizer.replacement", "▁", replacement);
    }
    cuts_.blanks = true;
    cuts_.at_blanks = flag("split");
    // Older files say add_prefix_space alone.
    const bool before = flag("add_prefix_space");
    const Json& scheme = member(pre_tokenizer, "prepend_scheme");
    if (scheme == "first") {
      cuts_.in_front = BlankInFront::first;
    } else if (scheme == "always" || (scheme.is_null() && before)) {
      cuts_.in_front = BlankInFront::always;
    } else if (scheme == "never" || scheme.is_null()) {
      cuts_.in_front = BlankInFront::never;
    } else {
      refuse_part(source, "pre_tokenizer.prepend_scheme", "always, first or never", scheme);
    }
  } else {
    refuse_part(source, "pre_tokenizer", "Metaspace, or WhitespaceSplit before it", pre_tokenizer);
  }
}

void Unigram::append(std::u32string_view part, bool first, const std::string& place,
                     std::vector<std::int32_t>& tokens) const {
  for (const std::u32string& cut : parts_of(part, first)) append_pieces(cut, place, tokens);
}

std::vector<std::u32string> Unigram::parts_of(std::u32string_view text, bool first) const {
  std::vector<std::u32string> parts;
  const auto append = [&](std::u32string_view word, bool at_front) {
    if (word.empty()) return;
    std::u32string part(word);
    if (cuts_.blanks) std::replace(part.begin(), part.end(), U' ', kBlank);
    const bool blank = cuts_.in_front == BlankInFront::always ||
                       (cuts_.in_front == BlankInFront::first && at_front);
    if (blank && part.front() != kBlank) part.insert(part.begin(), kBlank);
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t next = cuts_.at_blanks ? part.find(kBlank, begin + 1) : part.npos;
      parts.push_back(part.substr(begin, next - begin));
      begin = std::min(next, part.size());
    }
  };
  if (!cuts_.at_spaces) {
    append(text, first);
    return parts;
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && !is_space(text[at])) continue;
    append(text.substr(begin, at - begin), first && begin == 0);
    begin = at + 1;
  }
  return parts;
}

// Viterbi's algorithm: best[j] = max over pieces x[i:j] of best[i] + score(x[i:j]). A character
// that is no piece is an unknown one, as is the piece that stands for these; unknown ones next to
// each other are one token.
void Unigram::append_pieces(std::u32string_view part, const std::string& place,
                            std::vector<std::int32_t>& tokens) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
    std::int32_t piece = -1;  // -1: an unknown character
  };
  std::vector<Best> best(part.size() + 1);  // of the first j characters
  best[0].score = 0;
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t piece, double score) {
    const double whole = best[begin].score + score;
    if (whole > best[end].score) best[end] = {whole, begin, piece};
  };
  for (std::size_t i = 0; i < part.size(); ++i) {
    bool known = false;  // the character is a piece
    std::string text;
    for (std::size_t j = i + 1; j <= std::min(part.size(), i + longest_); ++j) {
      append_utf8(text, part[j - 1]);
      const std::int32_t piece = piece_of(text);
      if (piece < 0) continue;
      offer(i, j, piece, scores_[static_cast<std::size_t>(piece)]);
      known = known || j == i + 1;
    }
    if (!known) offer(i, i + 1, -1, unknown_score_);
  }
  std::vector<std::size_t> ends;  // of the best pieces, the last one first
  for (std::size_t j = part.size(); j > 0; j = best[j].begin) ends.push_back(j);
  std::u32string unknown;
  const auto end_unknown = [&] {
    if (!unknown.empty()) append_unknown(encode_utf8(unknown), place, tokens);
    unknown.clear();
  };
  for (std::size_t k = ends.size(); k-- > 0;) {
    const Best& way = best[ends[k]];
    if (way.piece < 0 || way.piece == unknown_) {
      unknown += part.substr(way.begin, ends[k] - way.begin);
    } else {
      end_unknown();
      tokens.push_back(way.piece);
    }
  }
  end_unknown();
}

void Unigram::append_unknown(const std::string& text, const std::string& place,
                             std::vector<std::int32_t>& tokens) const {
  if (unknown_ >= 0 && text == entry(unknown_)) return tokens.push_back(unknown_);
  const auto of_byte = [&](char c) { return bytes_[static_cast<std::uint8_t>(c)]; };
  if (!bytes_.empty() &&
      std::all_of(text.begin(), text.end(), [&](char c) { return of_byte(c) >= 0; })) {
    for (const char c : text) tokens.push_back(of_byte(c));
  } else if (unknown_ >= 0) {
    tokens.push_back(unknown_);
  } else {
    throw DataError(fmt::format(
        "{}: '{}' is no piece of the vocabulary, which has no entry for what is unknown", place,
        printable(text)));
  }
}

std::string Unigram::text_of(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    const auto byte = std::find(bytes_.begin(), bytes_.end(), token);
    text += byte == bytes_.end() ? entry(token)
                                 : std::string(1, static_cast<char>(byte - bytes_.begin()));
  }
  const std::string blank = encode_utf8({&kBlank, 1});
  for (std::size_t at = 0; (at = text.find(blank, at)) != text.npos;) {
    text.replace(at, blank.size(), 1, ' ');
  }
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::int32_t Unigram::end_of_text() const {
  const std::int32_t end = number_of("</s>");
  return end >= 0 ? end : number_of("[SEP]");
}

void Unigram::put(Json& provenance) const {
  ListedVocabulary::put(provenance);
  // take_vocabulary() knows "model" as part of a vocabulary.
  provenance["model"] = made_of_;
}

std::shared_ptr<const Unigram> unigram_of(const TokenizerJson& json) {
  json.require_model("Unigram");
  const Json& model = json.part("model");
  UnigramParts parts;
  std::vector<double> scores;
  for (const Json& piece : member(model, "vocab")) {
    const bool pair =
        piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
    if (!pair) json.refuse("model.vocab", "pieces and their scores", piece);
    parts.entries.push_back(piece[0].get<std::string>());
    scores.push_back(piece[1].get<double>());
  }
  parts.made_of = {{"model",
                    {{"scores", scores},
                     {"unk_id", member(model, "unk_id")},
                     {"byte_fallback", member(model, "byte_fallback")}}},
                   {"normalizer", json.part("normalizer")},
                   {"pre_tokenizer", json.part("pre_tokenizer")}};
  parts.added = add_tokens(json, parts.entries);
  return std::make_shared<Unigram>(std::move(parts), json.file().string());
}

std::shared_ptr<const Unigram> unigram_in(const Json& provenance) {
  return std::make_shared<Unigram>(
      UnigramParts{entries_of(provenance), provenance.at("model"), added_tokens_of(provenance)},
      "provenance of the data");
}

}  // namespace skytape::data
