#include "data/tokenisers/byte_level_bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "data/files/source.hpp"
#include "data/tokenisers/files.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

/// Each byte as a character that can be printed: itself where it can, else the next beyond Latin-1.
std::vector<char32_t> letters_of_bytes() {
  std::vector<char32_t> letters(256);
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    letters[byte] = prints ? byte : next++;
  }
  return letters;
}

/// Returns the end of the cut that begins at `at`. GPT-2's expression, its alternatives in their
/// order:
///   's|'t|'re|'ve|'m|'ll|'d | ?letters+ | ?numbers+ | ?others+ | spaces+(?!\S) | spaces+
std::size_t end_of_cut(std::u32string_view text, std::size_t at) {
  const std::u32string_view rest = text.substr(at);
  for (const std::u32string_view ending : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
    if (rest.starts_with(ending)) return at + ending.size();
  }
  const auto run = [&](std::size_t from, const auto& inside) {
    while (from < text.size() && inside(text[from])) ++from;
    return from;
  };
  const std::size_t word = at + (text[at] == U' ' && at + 1 < text.size() ? 1 : 0);
  if (is_letter(text[word])) return run(word, is_letter);
  if (is_number(text[word])) return run(word, is_number);
  if (!is_space(text[word])) {
    return run(word, [](char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); });
  }
  // The last of several spaces before a word belongs to the word.
  const std::size_t end = run(at, is_space);
  return end < text.size() && end - at > 1 ? end - 1 : end;
}

constexpr std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(ByteLevelBpeParts parts, const std::string& source)
    : ListedVocabulary(std::move(parts.entries), parts.added),
      learnt_(std::move(parts.merges)),
      space_in_front_(parts.space_in_front) {
  for (const char32_t letter : letters_of_bytes()) {
    std::string entry;
    append_utf8(entry, letter);
    bytes_.push_back(number_of(entry));
    if (bytes_.back() < 0) {
      throw DataError(fmt::format("{}: no entry '{}' for the byte {}: expected all 256 of them",
                                  source, entry, bytes_.size() - 1));
    }
  }
  for (std::size_t rank = 0; rank < learnt_.size(); ++rank) add_merge(rank, source);
  std::vector<SpecialToken> usual;
  for (const std::string text : {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"}) {
    const std::int32_t number = number_of(text);
    if (number < 0) continue;
    usual.push_back({.text = text, .number = number, .takes_spaces = text == "<mask>"});
    numbers_of_special_.insert(number);
  }
  seek(usual, source);
  for (const SpecialToken& token : parts.added) numbers_of_special_.insert(token.number);
}

void ByteLevelBpe::add_merge(std::size_t rank, const std::string& source) {
  const std::string& merge = learnt_[rank];
  const std::size_t blank = merge.find(' ');
  const auto part = [&](const std::string& entry) {
    const std::int32_t number = number_of(entry);
    if (number >= 0) return number;
    throw DataError(fmt::format("{}: merge {}, '{}': '{}' is no entry of the vocabulary", source,
                                rank + 1, merge, entry));
  };
  const std::string left = merge.substr(0, blank), right = merge.substr(blank + 1);
  // One after the other, so that the first part that is missing is the one that is named.
  const std::int32_t a = part(left);
  const std::int32_t b = part(right);
  merges_[pair_of(a, b)] = {static_cast<std::int32_t>(rank), part(left + right)};
}

const ByteLevelBpe::Merge* ByteLevelBpe::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void ByteLevelBpe::append(std::u32string_view part, bool, const std::string&,
                          std::vector<std::int32_t>& tokens) const {
  std::u32string plain(part);
  if (space_in_front_ && plain.front() != U' ') plain.insert(plain.begin(), U' ');
  for (std::size_t at = 0, end = 0; at < plain.size(); at = end) {
    end = end_of_cut(plain, at);
    append_word(encode_utf8(std::u32string_view(plain).substr(at, end - at)), tokens);
  }
}

void ByteLevelBpe::append_word(std::string_view bytes, std::vector<std::int32_t>& tokens) const {
  // A list of the parts, linked in both directions; a part that was joined to its left has number
  // -1.
  struct Part {
    std::int32_t number;
    std::ptrdiff_t before, behind;
  };
  const auto count = static_cast<std::ptrdiff_t>(bytes.size());
  std::vector<Part> parts;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
    parts.push_back({bytes_[byte], i - 1, i + 1});
  }
  const auto at = [&](std::ptrdiff_t i) -> Part& { return parts[static_cast<std::size_t>(i)]; };

  // Pairs that may be joined, the earliest learnt first, then from the left.
  struct Pair {
    std::int32_t rank;
    std::ptrdiff_t left;
    std::int32_t result;
    bool operator>(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> open;
  const auto offer = [&](std::ptrdiff_t left) {
    if (left < 0 || at(left).behind >= count) return;
    const Merge* const merge = merge_of(at(left).number, at(at(left).behind).number);
    if (merge != nullptr) open.push({merge->rank, left, merge->result});
  };
  for (std::ptrdiff_t i = 0; i < count; ++i) offer(i);
  while (!open.empty()) {
    const Pair pair = open.top();
    open.pop();
    Part& left = at(pair.left);
    if (left.number < 0 || left.behind >= count) continue;
    Part& right = at(left.behind);
    const Merge* const merge = merge_of(left.number, right.number);
    if (merge == nullptr || merge->rank != pair.rank) continue;  // other parts stand there by now
    left.number = pair.result;
    left.behind = right.behind;
    right.number = -1;
    if (left.behind < count) at(left.behind).before = pair.left;
    offer(left.before);
    offer(pair.left);
  }
  for (std::ptrdiff_t i = 0; i < count; i = at(i).behind) tokens.push_back(at(i).number);
}

std::string ByteLevelBpe::text_of(std::span<const std::int32_t> tokens) const {
  std::unordered_map<char32_t, char> bytes;
  for (const char32_t letter : letters_of_bytes()) {
    bytes.emplace(letter, static_cast<char>(bytes.size()));
  }
  std::string text;
  for (const std::int32_t token : tokens) {
    const std::string letters = entry(token);
    if (numbers_of_special_.contains(token)) {
      text += letters;
      continue;
    }
    for (const char32_t letter : decode_utf8(letters, "entry of the vocabulary")) {
      const auto byte = bytes.find(letter);
      if (byte != bytes.end()) text += byte->second;
    }
  }
  return text;
}

void ByteLevelBpe::put(Json& provenance) const {
  ListedVocabulary::put(provenance);
  provenance["merges"] = learnt_;
  provenance["space_in_front"] = space_in_front_;
}

std::vector<std::string> read_merges(ByteStream& stream, const std::string& name) {
  std::vector<std::string> merges;
  LineReader lines(stream, name, kLongestEntry);
  for (std::string_view line; lines.next(line);) {
    if (lines.line_number() == 1 && line.starts_with(kByteOrderMark)) {
      lines.fail("a byte order mark, expected merges without one");
    }
    if (line.starts_with("#version") || line.empty()) continue;
    const std::size_t blank = line.find(' ');
    const bool two = blank != line.npos && blank > 0 && blank + 1 < line.size() &&
                     line.find(' ', blank + 1) == line.npos;
    if (!two) lines.fail(fmt::format("expected two entries with a blank between, got '{}'", line));
    if (static_cast<std::int64_t>(merges.size()) == kMostEntries) {
      lines.fail(fmt::format("more than {} merges", kMostEntries));
    }
    merges.emplace_back(line);
  }
  return merges;
}

namespace {

/// Merges as tokenizer.json has them: "left right", or ["left", "right"] since 2024.
std::vector<std::string> merges_of(const TokenizerJson& json) {
  std::vector<std::string> merges;
  for (const Json& merge : member(json.part("model"), "merges")) {
    const bool pair = merge.is_array() && merge.size() == 2;
    if (pair ? !merge[0].is_string() || !merge[1].is_string() : !merge.is_string()) {
      json.refuse("model.merges", "two entries each", merge);
    }
    merges.push_back(pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                          : merge.get<std::string>());
    if (merges.back().find(' ') == std::string::npos) {
      json.refuse("model.merges", "two entries each", merge);
    }
  }
  return merges;
}

}  // namespace

std::shared_ptr<const ByteLevelBpe> byte_level_bpe_of(const TokenizerJson& json) {
  json.require_model("BPE");
  for (const char* key : {"byte_fallback", "ignore_merges"}) json.require("model", key, false);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    json.require("model", key, "");
  }
  json.require("model", "dropout", 0);
  if (!json.part("normalizer").is_null()) {
    json.refuse("normalizer", "null", json.part("normalizer"));
  }
  const Json& cuts = json.part("pre_tokenizer");
  if (member(cuts, "type") != Json("ByteLevel")) json.refuse("pre_tokenizer", "ByteLevel", cuts);
  json.require("pre_tokenizer", "use_regex", true);
  ByteLevelBpeParts parts;
  parts.space_in_front = member(cuts, "add_prefix_space") == Json(true);
  TokeniserConfig(json.file().parent_path())
      .require_same("add_prefix_space", parts.space_in_front, "pre_tokenizer.add_prefix_space");
  parts.entries = json.entries();
  parts.added = add_tokens(json, parts.entries);
  parts.merges = merges_of(json);
  return std::make_shared<ByteLevelBpe>(std::move(parts), json.file().string());
}

std::shared_ptr<const ByteLevelBpe> read_byte_level_bpe(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const fs::path whole = folder / "tokenizer.json", vocabulary = folder / "vocab.json",
                 merges = folder / "merges.txt";
  if (fs::exists(whole) && !fs::exists(vocabulary)) return byte_level_bpe_of(TokenizerJson(whole));
  ByteLevelBpeParts parts;
  parts.entries = entries_in(read_json_file(vocabulary, kLargestFile), vocabulary.string());
  parts.merges = read_merges(*open_file(merges), merges.string());
  if (fs::exists(whole)) {
    const TokenizerJson json(whole);
    const auto bpe = byte_level_bpe_of(json);
    json.require_same(vocabulary, parts.entries, json.entries());
    json.require_same(merges, parts.merges, merges_of(json));
    return bpe;
  }
  parts.added = add_tokens(folder, parts.entries);
  parts.space_in_front = TokeniserConfig(folder).flag("add_prefix_space", false);
  return std::make_shared<ByteLevelBpe>(std::move(parts), folder.string());
}

std::shared_ptr<const ByteLevelBpe> byte_level_bpe_in(const Json& provenance) {
  return std::make_shared<ByteLevelBpe>(
      ByteLevelBpeParts{entries_of(provenance),
                        provenance.at("merges").get<std::vector<std::string>>(),
                        provenance.at("space_in_front").get<bool>(), added_tokens_of(provenance)},
      "provenance of the data");
}

}  // namespace skytape::data
