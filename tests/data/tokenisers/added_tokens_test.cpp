// Files next to a vocabulary add tokens to it; tokenizer.json has everything in one.
#include <random>
#include <set>
#include <utility>

#include "data/files/json.hpp"
#include "data/tokenisers/byte_level_bpe.hpp"
#include "data/tokenisers/files.hpp"
#include "data/tokenisers/special_tokens.hpp"
#include "data/tokenisers/unigram.hpp"
#include "data/tokenisers/wordpiece.hpp"
#include "data/unicode/unicode.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;
using test::unicode_or_skip;

namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::int32_t>;

const fs::path kVectors = "tests/goldens/tokenisers";  // from the repository's root
constexpr const char* kWords =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[E1]\nthe\nfilm\n[\n]\ne\n##1\n";

/// The numbers of a text, and the same after a way through the provenance.
Numbers numbers(const Vocabulary& vocabulary, const std::string& text) {
  Json provenance = Json::object();
  put_vocabulary(vocabulary, provenance);
  const Numbers all = vocabulary.encode(text, "text");
  CHECK(vocabulary_in(parse_json(json_text(provenance)))->encode(text, "text") == all);
  return all;
}

Json as_object(const std::vector<std::string>& entries) {
  Json all = Json::object();
  for (std::size_t i = 0; i < entries.size(); ++i) all[entries[i]] = i;
  return all;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  }
  return lines;
}

Json wordpiece_json(const std::string& vocabulary) {
  return {{"added_tokens", Json::array()},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model", {{"type", "WordPiece"}, {"vocab", as_object(lines_of(vocabulary))}}}};
}

}  // namespace

TEST_CASE("errors of added tokens name the file, the token and what is wrong with it") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const auto file = folder.write("tokenizer.json", json_text(wordpiece_json(kWords)));
  const auto error = [&](const std::string& name, const char* text) {
    folder.write(name, text);
    const std::string said = error_of<DataError>([&] { (void)read_wordpiece(file); });
    fs::remove(folder.path() / name);
    return said;
  };
  const struct {
    const char *file, *text, *part;
  } cases[] = {
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "x"}}})",
       "added_tokens_decoder: expected natural numbers as keys"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "x"}}})",
       "the added token 'x' has number 5, expected that of another entry than '[E1]'"},
      {"tokenizer_config.json",
       R"({"added_tokens_decoder": {"5": {"content": "[E1]", "lstrip": "yes"}}})",
       "added_tokens_decoder, 5, lstrip: expected true or false"},
      {"tokenizer_config.json", R"({"mask_token": {"content": "[MASK]", "rstrip": 1}})",
       "mask_token, rstrip: expected true or false"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": ["x"]})",
       "added_tokens_decoder: expected an object of numbers and tokens"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"lstrip": true}}})",
       "added_tokens_decoder, 5: expected a text, or {\"content\": a text, …}"},
      {"tokenizer_config.json", R"({"mask_token": 3})", "mask_token: expected a text, or"},
      {"special_tokens_map.json", R"({"cls_token": {"lstrip": true}})",
       "cls_token: expected a text, or"},
      {"special_tokens_map.json", R"({"additional_special_tokens": ["[E1]", null]})",
       "additional_special_tokens: expected a text, or"},
      {"special_tokens_map.json",
       R"({"additional_special_tokens": [{"content": "[E1]", "single_word": []}]})",
       "additional_special_tokens, single_word: expected true or false"},
      {"added_tokens.json", R"({"x": 5})", "the added token 'x' has number 5"},
  };
  for (const auto& c : cases) {
    const std::string said = error(c.file, c.text);
    CAPTURE(said);
    CHECK(said.starts_with((folder.path() / c.file).string() + ": " + c.part));
  }
  CHECK(error("tokenizer_config.json",
              R"({"added_tokens_decoder": {"5": {"content": "[E1]", "lstrip": null}}})") == "");
  CHECK(error("tokenizer_config.json", R"({"mask_token": null, "added_tokens_decoder": null})") ==
        "");
}

TEST_CASE("tokens that files next to a vocab.txt add are not split") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const auto file = folder.write("vocab.txt", kWords);
  CHECK(numbers(*read_wordpiece(file), "the [E1] film") == Numbers{6, 8, 10, 11, 9, 7});
  const auto with = [&](const char* name, const char* text) {
    for (const char* other :
         {"tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"}) {
      fs::remove(folder.path() / other);
    }
    folder.write(name, text);
    return read_wordpiece(file);
  };
  const Numbers whole{6, 5, 7};
  CHECK(numbers(*with("tokenizer_config.json",
                      R"({"added_tokens_decoder": {"5": {"content": "[E1]", "special": true}}})"),
                "the [E1] film") == whole);
  CHECK(
      numbers(*with("tokenizer_config.json", R"({"additional_special_tokens": ["[E1]", "[E2]"]})"),
              "the [E1] film") == whole);
  CHECK(numbers(*with("special_tokens_map.json", R"({"extra_special_tokens": {"e": "[E1]"}})"),
                "the [E1] film") == whole);
  CHECK(numbers(*with("special_tokens_map.json", R"({"sep_token": {"content": "[E1]", "lstrip":
                true, "rstrip": true}})"),
                "the [E1] film") == whole);
  // Words that are added behind the vocabulary: in the text as it is normalised.
  const auto words = with("added_tokens.json", R"({"Covid": 12, "[E1]": 5})");
  CHECK(words->size() == 13);
  CHECK(words->entry(12) == "Covid");
  CHECK(numbers(*words, "the COVID[e1]film") == Numbers{6, 12, 5, 7});
  CHECK(numbers(*with("tokenizer_config.json",
                      R"({"added_tokens_decoder": {"12": {"content": "Covid"}}})"),
                "the Covid covid") == Numbers{6, 12, 1});
  // One that is no word of the vocabulary's is found where it is sought, not by cutting words.
  CHECK(numbers(*with("tokenizer_config.json",
                      R"({"added_tokens_decoder": {"12": {"content": "##m"}}})"),
                "film filmm ##m") == Numbers{7, 1, 12});
  CHECK(numbers(*with("tokenizer_config.json",
                      R"({"added_tokens_decoder": {"12": {"content": "fil"}}})"),
                "FIL fil FILM") == Numbers{1, 12, 7});
  const auto error = [&](const char* text) {
    return error_of<DataError>([&] { (void)with("added_tokens.json", text); });
  };
  CHECK(contains(error(R"({"new": 14})"), "'new' has number 14, expected 12"));
  CHECK(contains(error(R"({"new": 5})"), "another entry than '[E1]'"));
  CHECK(contains(error(R"({"new": "x"})"),
                 "added_tokens.json: 'new': expected its number in 0..4000000, got \"x\""));
  CHECK(contains(error(R"({"new": 4294967308})"), "expected its number"));  // 12 in 32 bits
  CHECK(contains(error(R"({"film": -5})"), "'film': expected its number"));
  CHECK(contains(error("[]"), "added_tokens.json: expected a JSON object, got []"));
  CHECK(contains(error_of<DataError>([&] { (void)with("special_tokens_map.json", "[1]"); }),
                 "special_tokens_map.json: expected a JSON object, got [1]"));
}

TEST_CASE("a special token's neighbours decide whether it counts, and which spaces are its own") {
  if (!unicode_or_skip()) return;
  SpecialTokens special;
  special.add({.text = "<w>", .number = 1, .whole_word = true});
  special.add({.text = "<b>", .number = 2, .takes_spaces_behind = true});
  special.add({.text = "é", .number = 3, .takes_spaces = true, .whole_word = true});
  // This reference looks at the whole text on both sides of each token.
  const auto expected = [](const std::u32string& text) {
    std::vector<std::pair<std::string, std::int32_t>> parts;
    std::u32string plain;
    const auto end_plain = [&] {
      if (!plain.empty()) parts.emplace_back(encode_utf8(plain), -1);
      plain.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::u32string rest = text.substr(at);
      const int number = rest.starts_with(U"<w>")   ? 1
                         : rest.starts_with(U"<b>") ? 2
                         : rest.starts_with(U"é")   ? 3
                                                    : -1;
      const std::size_t end = at + (number < 0 || number == 3 ? 1 : 3);
      const bool inside = (at > 0 && is_word_character(text[at - 1])) ||
                          (end < text.size() && is_word_character(text[end]));
      if (number < 0 || (number != 2 && inside)) {
        plain += text.substr(at, end - at);
        at = end;
        continue;
      }
      while (number == 3 && !plain.empty() && is_space(plain.back())) plain.pop_back();
      end_plain();
      parts.emplace_back(encode_utf8(text.substr(at, end - at)), number);
      at = end;
      while (number == 2 && at < text.size() && is_space(text[at])) ++at;
    }
    end_plain();
    return parts;
  };
  // Characters of one to four bytes that words have, spaces, and others; a mark and a zero byte.
  const std::vector<std::u32string> words = {
      U"<w>", U"<b>",    U"é",          U"<",      U">",
      U"a",   U"_",      U"中",         U"𝒜",      U"\u0301",
      U" ",   U"\u00A0", U"\u3000",     U"\n",     U".",
      U"²",   U"\u20AC", U"\U0001F600", U"\u200B", std::u32string(1, U'\0')};
  std::mt19937 random(7);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 3000; ++i) {
    std::u32string text;
    for (std::size_t n = random() % 9; n > 0; --n) text += words[random() % words.size()];
    const std::string bytes = encode_utf8(text);
    std::vector<std::pair<std::string, std::int32_t>> got;
    for (const TextPart& part : special.cut(bytes)) {
      got.emplace_back(part.text, part.special);
      seen.insert(part.special);
    }
    CAPTURE(bytes);
    const bool same = got == expected(text);
    CHECK(same);
  }
  CHECK(seen == std::set<std::int32_t>{-1, 1, 2, 3});
}

TEST_CASE("spaces that a token took are searched for tokens, too, and belong to one of them") {
  if (!unicode_or_skip()) return;
  SpecialTokens special;
  special.add({.text = " the", .number = 1, .takes_spaces_behind = true});
  special.add({.text = "\n", .number = 2, .takes_spaces = true, .takes_spaces_behind = true});
  const auto numbers_in = [&](const char* text) {
    Numbers all;
    for (const TextPart& part : special.cut(text)) all.push_back(part.special);
    return all;
  };
  CHECK(numbers_in("a the the  b") == Numbers{-1, 1, 1, -1});
  CHECK(numbers_in(" the  \n") == Numbers{1});
  CHECK(numbers_in("\n\n the\n") == Numbers{2, 1});
  special.add({.text = "\t", .number = 3, .takes_spaces_behind = true});
  CHECK(numbers_in("a\t\t  b") == Numbers{-1, 3, 3, -1});
  CHECK(special.cut("a\t\t  b").back().text == "b");
}

TEST_CASE("a usual special token is sought as its file says, once") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  folder.write("vocab.json", read_file(kVectors / "bpe/vocab.json"));
  folder.write("merges.txt", read_file(kVectors / "bpe/merges.txt"));
  const Json vocabulary = parse_json(read_file(kVectors / "bpe/vocab.json"));
  const auto mask = vocabulary.at("<mask>").get<std::int32_t>();
  const auto with = [&](const Json& flags) {
    Json token = {{"content", "<mask>"}};
    token.update(flags);
    const Json config = {{"added_tokens_decoder", {{std::to_string(mask), token}}}};
    folder.write("tokenizer_config.json", json_text(config));
    return read_byte_level_bpe(folder.path());
  };
  for (const bool normalised : {false, true}) {
    CAPTURE(normalised);
    const auto plain = with({{"normalized", normalised}});
    CHECK(numbers(*plain, " \n<mask>") ==
          Numbers{numbers(*plain, " \n")[0], numbers(*plain, " \n")[1], mask});
    const auto behind = with({{"normalized", normalised}, {"rstrip", true}});
    CHECK(numbers(*behind, "<mask> \n") == Numbers{mask});
    const auto whole = with({{"normalized", normalised}, {"single_word", true}});
    CHECK(numbers(*whole, "<mask>").size() == 1);
    CHECK(numbers(*whole, "a<mask>").size() > 2);
  }
}

TEST_CASE("tokens that are added to byte-level BPE are not split, <|endoftext|> never") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  Json vocabulary = parse_json(read_file(kVectors / "bpe/vocab.json"));
  const auto next = static_cast<std::int32_t>(vocabulary.size());
  vocabulary["<|endoftext|>"] = next;
  folder.write("vocab.json", json_text(vocabulary));
  folder.write("merges.txt", read_file(kVectors / "bpe/merges.txt"));
  folder.write("added_tokens.json", "{\"<extra>\": " + std::to_string(next + 1) + "}");
  const auto bpe = read_byte_level_bpe(folder.path());
  const Numbers got = numbers(*bpe, "<|endoftext|>a<extra>");
  REQUIRE(got.size() == 3);
  CHECK(got[0] == next);
  CHECK(got[2] == next + 1);
  CHECK(bpe->text_of(got) == "<|endoftext|>a<extra>");
}

TEST_CASE("a tokenizer.json gives the numbers of the files that it stands for") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const std::string uncased = read_file(kVectors / "wordpiece/uncased.txt");
  const auto from_text = read_wordpiece(kVectors / "wordpiece/uncased.txt");
  folder.write("tokenizer.json", json_text(wordpiece_json(uncased)));
  const auto from_json = read_wordpiece(folder.path() / "tokenizer.json");

  const fs::path bpe = kVectors / "bpe";
  Json merges = Json::array();
  for (const std::string& merge : lines_of(read_file(bpe / "merges.txt"))) {
    if (merge.empty() || merge.starts_with("#version")) continue;
    const std::size_t blank = merge.find(' ');
    if (merges.size() % 2 == 0) {
      merges.push_back(merge);
    } else {
      merges.push_back(Json::array({merge.substr(0, blank), merge.substr(blank + 1)}));
    }
  }
  const Json whole = {{"added_tokens", Json::array()},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                      {"model",
                       {{"type", "BPE"},
                        {"vocab", parse_json(read_file(bpe / "vocab.json"))},
                        {"merges", merges}}}};
  folder.write("bpe/tokenizer.json", json_text(whole));
  const auto plain = read_byte_level_bpe(bpe), again = read_byte_level_bpe(folder.path() / "bpe");
  for (const char* text :
       {"The film's [MASK] wasn't  good,\tÉté 42!", "x<mask> </s>\n\nnaïve 中国"}) {
    CHECK(numbers(*from_json, text) == numbers(*from_text, text));
    CHECK(numbers(*again, text) == numbers(*plain, text));
  }
}

TEST_CASE("an added token of a tokenizer.json is no piece of words, but for the vocabulary's own") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  Json json = wordpiece_json(kWords);
  // In the midst of the numbers, behind them, and one that the vocabulary has.
  json["model"]["vocab"].erase("e");
  json["added_tokens"] = Json::array({{{"id", 10}, {"content", "e"}, {"single_word", true}},
                                      {{"id", 12}, {"content", "##e"}},
                                      {{"id", 7}, {"content", "film"}}});
  const auto wordpiece = read_wordpiece(folder.write("tokenizer.json", json_text(json)));
  CHECK(numbers(*wordpiece, "e FILM E thee") == Numbers{10, 7, 1, 1});
  CHECK(numbers(*wordpiece, "##e the1") == Numbers{12, 6, 11});
}

TEST_CASE("a tokenizer.json under another name has its own added tokens, not its neighbour's") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  Json json = wordpiece_json(kWords);
  json["added_tokens"] = Json::array({{{"id", 12}, {"content", "Covid"}}});
  const auto file = folder.write("mine.json", json_text(json));
  const Numbers mine{6, 12, 1};
  CHECK(numbers(*read_wordpiece(file), "the Covid flu") == mine);
  Json other = wordpiece_json(kWords);
  other["added_tokens"] = Json::array({{{"id", 12}, {"content", "flu"}}});
  folder.write("tokenizer.json", json_text(other));
  CHECK(numbers(*read_wordpiece(file), "the Covid flu") == mine);
  CHECK(numbers(*read_wordpiece(folder.path() / "tokenizer.json"), "the Covid flu") ==
        Numbers{6, 1, 12});
  const Json unigram = parse_json(read_file(kVectors / "unigram/tokenizer.json"));
  folder.write("tokenizer.json", json_text(wordpiece_json(kWords)));
  const TokenizerJson renamed(folder.write("pieces.json", json_text(unigram)));
  const auto before = unigram_of(TokenizerJson(kVectors / "unigram/tokenizer.json"));
  const auto after = unigram_of(renamed);
  REQUIRE_FALSE(member(unigram, "added_tokens").empty());
  for (const Json& token : member(unigram, "added_tokens")) {
    const std::string text = "x" + token.at("content").get<std::string>() + "y";
    CHECK(numbers(*after, text) == numbers(*before, text));
  }
}

TEST_CASE("a tokenizer.json decides where the files that it replaces are next to it") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const std::string words =
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhallo\nHallo\nwelt\nWelt\n\u00FC\nu\n";
  Json json = wordpiece_json(words);
  const auto file = folder.write("vocab.txt", words);
  const auto numbers_with = [&](const char* key, const Json& value, const std::string& config) {
    json["normalizer"] = {{"type", "BertNormalizer"}, {"lowercase", false}};
    json["normalizer"][key] = value;
    folder.write("tokenizer.json", json_text(json));
    folder.write("tokenizer_config.json", config);
    return numbers(*read_wordpiece(file), "Hallo WELT \u00FC");
  };
  CHECK(numbers_with("strip_accents", nullptr, "{}") == Numbers{6, 1, 9});
  CHECK(numbers_with("lowercase", true, "{}") == Numbers{5, 7, 10});
  CHECK(numbers_with("strip_accents", true, R"({"do_lower_case": false})") == Numbers{6, 1, 10});
  // Classes of tokenisers that read tokenizer.json alone.
  const char* const alone =
      R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true})";
  CHECK(numbers_with("strip_accents", false, alone) == Numbers{6, 1, 9});
  const auto error = [&](const char* key, const Json& value, const std::string& config) {
    return error_of<DataError>([&] { (void)numbers_with(key, value, config); });
  };
  CHECK(contains(
      error("lowercase", false, R"({"do_lower_case": true})"),
      "do_lower_case is true, but normalizer.lowercase of the tokenizer.json next to it is "
      "false"));
  CHECK(contains(error("strip_accents", true, R"({"strip_accents": false})"), "strip_accents is"));
  CHECK(contains(error("handle_chinese_chars", false, R"({"tokenize_chinese_chars": true})"),
                 "handle_chinese_chars of the tokenizer.json next to it is false"));
  CHECK(contains(error("type", "NFKC", "{}"), "normalizer: expected BertNormalizer"));
  // Another model's words.
  folder.write("vocab.txt", words.substr(0, words.find("Hallo")) + "Hello\n");
  CHECK(
      contains(error("lowercase", true, "{}"), "vocab.txt: number 6 is 'Hello', but 'Hallo' in "));
  folder.write("vocab.txt", words + "more\n");
  CHECK(contains(error("lowercase", true, "{}"), "number 11 is 'more', but nothing in "));
}

TEST_CASE("a tokenizer.json next to vocab.json and merges.txt decides, or differs and is refused") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bpe = kVectors / "bpe";
  const std::string merges = read_file(bpe / "merges.txt");
  Json learnt = Json::array();
  for (const std::string& merge : lines_of(merges)) {
    if (!merge.empty() && !merge.starts_with("#version")) learnt.push_back(merge);
  }
  Json whole = {{"added_tokens", Json::array()},
                {"normalizer", nullptr},
                {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}},
                {"model",
                 {{"type", "BPE"},
                  {"vocab", parse_json(read_file(bpe / "vocab.json"))},
                  {"merges", learnt}}}};
  folder.write("vocab.json", read_file(bpe / "vocab.json"));
  folder.write("merges.txt", merges);
  folder.write("tokenizer.json", json_text(whole));
  const auto plain = read_byte_level_bpe(bpe);
  CHECK(numbers(*read_byte_level_bpe(folder.path()), "The film") == numbers(*plain, " The film"));
  const auto error = [&] {
    return error_of<DataError>([&] { (void)read_byte_level_bpe(folder.path()); });
  };
  folder.write("tokenizer_config.json", R"({"add_prefix_space": false})");
  CHECK(contains(error(), "add_prefix_space is false, but pre_tokenizer.add_prefix_space of the"));
  folder.write("tokenizer_config.json", "{}");
  CHECK(error().empty());
  whole["normalizer"] = {{"type", "Lowercase"}};
  folder.write("tokenizer.json", json_text(whole));
  CHECK(contains(error(), "normalizer: expected null"));
  whole["normalizer"] = nullptr;
  folder.write("tokenizer.json", json_text(whole));
  folder.write("merges.txt", lines_of(merges)[0] + "\n" + lines_of(merges)[2] + "\n");
  CHECK(contains(error(), "merges.txt: number 0 is '"));
  Json entries = whole["model"]["vocab"];
  std::swap(entries["a"], entries["b"]);
  folder.write("merges.txt", merges);
  folder.write("vocab.json", json_text(entries));
  CHECK(contains(error(), "vocab.json: number "));
}

TEST_CASE("a tokenizer.json names the part that is not supported") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const auto error_with = [&](const char* part, const char* key, const Json& value) {
    Json json = wordpiece_json(kWords);
    json[part][key] = value;
    const auto file = folder.write("tokenizer.json", json_text(json));
    return error_of<DataError>([&] { (void)read_wordpiece(file); });
  };
  CHECK(error_with("model", "unk_token", "[UNK]").empty());
  CHECK(contains(error_with("model", "type", "Unigram"), "model.type: expected WordPiece"));
  CHECK(contains(error_with("model", "unk_token", "?"), "model.unk_token: expected \"[UNK]\""));
  CHECK(contains(error_with("normalizer", "type", "NFKC"), "normalizer: expected BertNormalizer"));
  CHECK(contains(error_with("normalizer", "lowercase", 3), "expected true or false"));
  CHECK(contains(error_with("pre_tokenizer", "type", "Whitespace"), "pre_tokenizer: expected"));
  CHECK(contains(error_with("model", "vocab", Json::array()), "model.vocab: expected an object"));
  const auto added_error = [&](const Json& listed) {
    Json json = wordpiece_json(kWords);
    json["added_tokens"] = listed;
    const auto file = folder.write("tokenizer.json", json_text(json));
    return error_of<DataError>([&] { (void)read_wordpiece(file); });
  };
  CHECK(contains(added_error("x"), "tokenizer.json: added_tokens: expected a list of {\"id\":"));
  const Json good = {{"id", 0}, {"content", "[PAD]"}};
  CHECK(added_error(Json::array({good})).empty());
  for (const Json& odd : {Json("x"), Json{{"id", "0"}, {"content", "[PAD]"}},
                          Json{{"id", -1}, {"content", "[PAD]"}}, Json{{"id", 0}}}) {
    CHECK(contains(added_error(Json::array({good, odd})),
                   "tokenizer.json: added_tokens, entry 2: expected {\"id\": a natural number"));
  }
  CHECK(contains(added_error(Json::array({{{"id", 0}, {"content", "[PAD]"}, {"lstrip", 3}}})),
                 "added_tokens, entry 1, lstrip: expected true or false"));
}
