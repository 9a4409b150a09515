#include "data/tokenisers/wordpiece.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/source.hpp"
#include "data/tokenisers/files.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kLongestWord = 100;  // characters; a longer one is unknown, as in BERT's code
constexpr const char* kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

/// The blocks that BERT takes for Chinese. The last but one begins at 2B920 as in the code that is
/// used everywhere, not at 2B820, where the block does.
bool is_chinese(char32_t c) {
  constexpr char32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                     {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const auto& block) { return c >= block[0] && c <= block[1]; });
}

/// ASCII's signs count, too, those among them that Unicode calls symbols.
bool is_mark(char32_t c) {
  const bool sign = c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
                    !(c >= 'a' && c <= 'z');
  return sign || is_punctuation(c);
}

/// Passes the words of a normalised text to `take`: marks by themselves, runs of anything else.
template <class Take> void split_words(std::u32string_view text, const Take& take) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const bool ends = at == text.size() || is_space(text[at]) || is_mark(text[at]);
    if (!ends) continue;
    if (at > begin) take(text.substr(begin, at - begin));
    if (at < text.size() && is_mark(text[at])) take(text.substr(at, 1));
    begin = at + 1;
  }
}

}  // namespace

WordPiece::WordPiece(std::vector<std::string> entries, const WordPieceOptions& options,
                     const std::string& source, std::vector<SpecialToken> added)
    : ListedVocabulary(std::move(entries), std::move(added)), options_(options) {
  for (std::int32_t i = 0; i < size(); ++i) longest_ = std::max(longest_, entry(i).size());
  std::vector<SpecialToken> usual;
  for (const char* text : kSpecial) {
    const std::int32_t number = number_of(text);
    if (number < 0) {
      throw DataError(
          fmt::format("{}: no entry {}: expected a vocabulary of BERT's with {}, an entry a line",
                      source, text, fmt::join(kSpecial, ", ")));
    }
    usual.push_back({text, number});
  }
  seek(usual, source);
  unknown_ = number_of("[UNK]");
}

/// Without control characters, every space a blank, Chinese characters apart; then in small letters
/// without accents.
std::u32string WordPiece::normalised(std::u32string text) const {
  std::u32string plain;
  for (const char32_t c : text) {
    if (c == '\t' || c == '\n' || c == '\r') {
      plain += U' ';
    } else if (c == 0 || c == 0xFFFD || is_control(c)) {
      continue;
    } else if (is_space(c)) {
      plain += U' ';
    } else if (options_.split_cjk && is_chinese(c)) {
      plain += {U' ', c, U' '};
    } else {
      plain += c;
    }
  }
  if (options_.strip_accents) {
    plain = normal_form(plain, NormalForm::d);
    std::erase_if(plain, is_nonspacing_mark);
  }
  return options_.lower_case ? lower_case(plain) : plain;
}

void WordPiece::append(std::u32string_view part, bool, const std::string&,
                       std::vector<std::int32_t>& tokens) const {
  split_words(part, [&](std::u32string_view word) { append_word(word, tokens); });
}

void WordPiece::append_word(std::u32string_view word, std::vector<std::int32_t>& tokens) const {
  if (word.size() > kLongestWord) {
    tokens.push_back(unknown_);
    return;
  }
  std::string bytes;
  std::vector<std::size_t> ends = {0};  // of the characters before each, in bytes
  for (const char32_t c : word) {
    append_utf8(bytes, c);
    ends.push_back(bytes.size());
  }
  const std::size_t before = tokens.size();
  std::string piece;
  for (std::size_t begin = 0; begin < word.size();) {
    std::int32_t number = -1;
    std::size_t end = word.size();
    for (; end > begin; --end) {
      if (ends[end] - ends[begin] > longest_) continue;
      piece = begin == 0 ? "" : "##";
      piece.append(bytes, ends[begin], ends[end] - ends[begin]);
      number = piece_of(piece);
      if (number >= 0) break;
    }
    if (number < 0) {  // the whole word is unknown, not the rest of it
      tokens.resize(before);
      tokens.push_back(unknown_);
      return;
    }
    tokens.push_back(number);
    begin = end;
  }
}

std::string WordPiece::text_of(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    const std::string piece = entry(token);
    const bool goes_on = piece.size() > 2 && piece.starts_with("##");
    if (!goes_on && !text.empty()) text += ' ';
    text += goes_on ? piece.substr(2) : piece;
  }
  return text;
}

void WordPiece::put(Json& provenance) const {
  ListedVocabulary::put(provenance);
  provenance["lower_case"] = options_.lower_case;
  provenance["strip_accents"] = options_.strip_accents;
  provenance["split_cjk"] = options_.split_cjk;
}

namespace {

std::vector<std::string> read_entries(ByteStream& vocabulary, const std::string& name) {
  std::vector<std::string> entries;
  LineReader lines(vocabulary, name, kLongestEntry);
  for (std::string_view line; lines.next(line);) {
    if (static_cast<std::int64_t>(entries.size()) == kMostEntries) {
      lines.fail(fmt::format("more than {} entries", kMostEntries));
    }
    if (entries.empty() && line.starts_with("\xEF\xBB\xBF")) {
      lines.fail("a byte order mark, expected an entry without one");
    }
    (void)decode_utf8(line, fmt::format("{}:{}", name, lines.line_number()));
    entries.emplace_back(line);
  }
  return entries;
}

}  // namespace

std::shared_ptr<const WordPiece> read_wordpiece(ByteStream& vocabulary,
                                                const WordPieceOptions& options,
                                                const std::string& name) {
  return std::make_shared<WordPiece>(read_entries(vocabulary, name), options, name);
}

std::shared_ptr<const WordPiece> wordpiece_of(const TokenizerJson& json) {
  json.require_model("WordPiece");
  json.require("model", "unk_token", "[UNK]");
  json.require("model", "continuing_subword_prefix", "##");
  json.require("model", "max_input_chars_per_word", 100);
  const Json& normalizer = json.part("normalizer");
  if (member(normalizer, "type") != Json("BertNormalizer")) {
    json.refuse("normalizer", "BertNormalizer", normalizer);
  }
  json.require("normalizer", "clean_text", true);
  if (member(json.part("pre_tokenizer"), "type") != Json("BertPreTokenizer")) {
    json.refuse("pre_tokenizer", "BertPreTokenizer", json.part("pre_tokenizer"));
  }
  const auto flag = [&](const char* key, bool otherwise) {
    return flag_in(normalizer, key, otherwise, json.file().string(), "normalizer");
  };
  WordPieceOptions options;
  options.lower_case = flag("lowercase", true);
  options.strip_accents = flag("strip_accents", options.lower_case);
  options.split_cjk = flag("handle_chinese_chars", true);
  const TokeniserConfig config(json.file().parent_path());
  config.require_same("do_lower_case", options.lower_case, "normalizer.lowercase");
  config.require_same("strip_accents", options.strip_accents, "normalizer.strip_accents");
  config.require_same("tokenize_chinese_chars", options.split_cjk,
                      "normalizer.handle_chinese_chars");
  std::vector<std::string> entries = json.entries();
  std::vector<SpecialToken> added = add_tokens(json, entries);
  const Json& pieces = member(json.part("model"), "vocab");
  for (SpecialToken& token : added) token.piece = pieces.contains(token.text);
  return std::make_shared<WordPiece>(std::move(entries), options, json.file().string(),
                                     std::move(added));
}

std::shared_ptr<const WordPiece> read_wordpiece(const std::filesystem::path& file) {
  if (file.extension() == ".json") return wordpiece_of(TokenizerJson(file));
  const auto stream = open_file(file);
  std::vector<std::string> entries = read_entries(*stream, file.string());
  if (const auto whole = file.parent_path() / "tokenizer.json"; std::filesystem::exists(whole)) {
    const TokenizerJson json(whole);
    const auto wordpiece = wordpiece_of(json);
    json.require_same(file, entries, json.entries());
    return wordpiece;
  }
  const TokeniserConfig config(file.parent_path());
  WordPieceOptions options;
  options.lower_case = config.flag("do_lower_case", options.lower_case);
  // By default accents are stripped where capital letters become small ones.
  options.strip_accents = config.flag("strip_accents", options.lower_case);
  options.split_cjk = config.flag("tokenize_chinese_chars", options.split_cjk);
  std::vector<SpecialToken> added = add_tokens(file.parent_path(), entries);
  return std::make_shared<WordPiece>(std::move(entries), options, file.string(), std::move(added));
}

std::shared_ptr<const WordPiece> wordpiece_in(const Json& provenance) {
  const WordPieceOptions options{provenance.at("lower_case").get<bool>(),
                                 provenance.at("strip_accents").get<bool>(),
                                 provenance.at("split_cjk").get<bool>()};
  return std::make_shared<WordPiece>(entries_of(provenance), options, "provenance of the data",
                                     added_tokens_of(provenance));
}

}  // namespace skytape::data
