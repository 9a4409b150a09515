// Subword tokens: the numbers of Hugging Face's tokenisers on hostile texts (tests/goldens), models
// of SentencePiece that are learnt here, and files that are broken.
#include <random>
#include <utility>

#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "data/tokenisers/byte_level_bpe.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/special_tokens.hpp"
#include "data/tokenisers/wordpiece.hpp"
#include "data/unicode/unicode.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;

namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::int32_t>;

const fs::path kVectors = "tests/goldens/tokenisers";  // from the repository's root
constexpr const char* kFewEntries = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

/// Returns whether this build has what the case needs; says that it is skipped otherwise.
bool here_or_skip(bool has, const char* library) {
  if (!has) MESSAGE("skipped: built without ", library);
  return has;
}

Numbers numbers_of(const Json& values) {
  const auto wide = values.get<std::vector<std::int64_t>>();
  return {wide.begin(), wide.end()};
}

/// Encodes every text of a file of vectors, and the same after a way through the provenance.
void check_vectors(const fs::path& file, const char* key, const Vocabulary& vocabulary) {
  Json provenance = Json::object();
  put_vocabulary(vocabulary, provenance);
  const auto stored = json_text(provenance, {.ascii = true});
  const auto again = vocabulary_in(parse_json(stored));
  CHECK(again->size() == vocabulary.size());
  std::size_t texts = 0;
  const Json vectors = parse_json(read_file(file));
  for (const Json& vector : vectors) {
    const auto text = vector.at("text").get<std::string>();
    CAPTURE(json_text(vector["text"], {.ascii = true}));
    CAPTURE(key);
    CHECK(vocabulary.encode(text, "vector") == numbers_of(vector.at(key)));
    CHECK(again->encode(text, "vector") == numbers_of(vector.at(key)));
    ++texts;
  }
  CHECK(texts > 250);
}

std::shared_ptr<const WordPiece> wordpiece_of(const std::string& file,
                                              const WordPieceOptions& options = {}) {
  return read_wordpiece(*open_memory(as_bytes(file)), options, "vocab.txt");
}

/// A folder with the vectors' vocab.json and merges.txt, one of them replaced.
std::string error_of_bpe(const Folder& folder, const std::string& name, const std::string& text) {
  for (const char* file : {"vocab.json", "merges.txt"}) {
    folder.write(std::string("bpe/") + file, read_file(kVectors / "bpe" / file));
  }
  folder.write("bpe/" + name, text);
  return error_of<DataError>([&] { (void)read_byte_level_bpe(folder.path() / "bpe"); });
}

/// Sentences of few words.
std::vector<std::string> sentences(int count) {
  const char* const words[] = {"rivers", "river", "boats", "boat", "turning", "turned", "slowly"};
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (int j = 0; j < 6; ++j) text += std::string(j ? " " : "") + words[(i * 5 + j * j) % 7];
    texts.push_back(text);
  }
  return texts;
}

}  // namespace

TEST_CASE("WordPiece gives Hugging Face's numbers on hostile texts") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const fs::path folder = kVectors / "wordpiece", vectors = folder / "vectors.json";
  check_vectors(vectors, "uncased", *read_wordpiece(folder / "uncased.txt"));
  const std::string cased = read_file(folder / "cased.txt");
  check_vectors(vectors, "cased", *wordpiece_of(cased, {false, false, true}));
  check_vectors(vectors, "lower_case_with_accents", *wordpiece_of(cased, {true, false, true}));
  const std::string uncased = read_file(folder / "uncased.txt");
  check_vectors(vectors, "no_cjk", *wordpiece_of(uncased, {true, true, false}));
}

TEST_CASE("WordPiece cuts words of up to a hundred characters, however many bytes they have") {
  const Folder folder;
  const auto vocabulary = read_wordpiece(
      folder.write("vocab.txt", std::string(kFewEntries) + "x\n##x\n\u00e6\n##\u00e6\n"));
  const auto encoded = [&](const std::string& letter, int count) {
    std::string text = "x ";
    for (int i = 0; i < count; ++i) text += letter;
    return vocabulary->encode(text, "test");
  };
  for (const auto& [letter, first] : {std::pair("x", 5), std::pair("\u00e6", 7)}) {
    for (const int count : {1, 2, 99, 100}) {
      CAPTURE(count);
      Numbers expected = {5, first};
      expected.resize(1 + static_cast<std::size_t>(count), first + 1);
      CHECK(encoded(letter, count) == expected);
    }
    CHECK(encoded(letter, 101) == Numbers{5, 1});
  }
}

TEST_CASE("byte-level BPE gives Hugging Face's numbers on hostile texts, and its texts come back") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const fs::path vectors = kVectors / "bpe" / "vectors.json";
  const auto plain = read_byte_level_bpe(kVectors / "bpe");
  check_vectors(vectors, "plain", *plain);
  for (const Json& vector : parse_json(read_file(vectors))) {
    const auto text = vector.at("text").get<std::string>();
    if (text.find("<mask>") != text.npos) continue;  // takes the spaces in front of it away
    CHECK(plain->text_of(plain->encode(text, "vector")) == text);
  }
  const Folder folder;
  for (const char* file : {"vocab.json", "merges.txt"}) {
    folder.write(file, read_file(kVectors / "bpe" / file));
  }
  folder.write("tokenizer_config.json", R"({"add_prefix_space": true})");
  check_vectors(vectors, "space_in_front", *read_byte_level_bpe(folder.path()));
}

TEST_CASE("byte-level BPE joins the pair that was learnt first, of equals the one to the left") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const Folder folder;
  Json vocabulary = Json::object();
  std::string merges = "#version: 0.2\n";
  const Json all = parse_json(read_file(kVectors / "bpe/vocab.json"));
  for (const auto& [entry, number] : all.items()) {
    if (decode_utf8(entry, "entry").size() == 1) vocabulary[entry] = vocabulary.size();
  }
  for (const char* merge : {"z z", "y z", "x y", "x yz", "# #"}) {
    std::string entry = merge;
    std::erase(entry, ' ');
    vocabulary[entry] = vocabulary.size();
    merges += std::string(merge) + "\n";
  }
  folder.write("vocab.json", json_text(vocabulary));
  folder.write("merges.txt", merges);
  const auto bpe = read_byte_level_bpe(folder.path());
  const auto pieces = [&](const char* text) {
    std::string text_of;
    for (const std::int32_t token : bpe->encode(text, "text")) text_of += bpe->entry(token) + " ";
    return text_of;
  };
  CHECK(pieces("zzz") == "zz z ");
  CHECK(pieces("xyz") == "xyz ");  // "y z" first, behind which no "x y" stands
  CHECK(pieces("xy") == "xy ");
  CHECK(pieces("##") == "## ");
}

TEST_CASE("a tokenizer_config.json next to a vocabulary says what is kept of a text") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const Folder folder;
  const auto file =
      folder.write("vocab.txt", std::string(kFewEntries) + "a\nA\ná\nÁ\n漢\n##字\n漢字\n");
  const auto pieces = [&](const std::string& config) {
    folder.write("tokenizer_config.json", config);
    const auto vocabulary = read_wordpiece(file);
    std::string text;
    for (const std::int32_t n : vocabulary->encode("A Á 漢字", "x")) {
      text += vocabulary->entry(n) + "/";
    }
    return text;
  };
  CHECK(pieces("{}") == "a/a/漢/[UNK]/");
  CHECK(pieces(R"({"do_lower_case": false})") == "A/Á/漢/[UNK]/");
  CHECK(pieces(R"({"strip_accents": false, "tokenize_chinese_chars": false})") == "a/á/漢字/");
  CHECK(pieces(R"({"do_lower_case": null, "unknown": 1})") == "a/a/漢/[UNK]/");
  CHECK(contains(error_of<DataError>([&] { (void)pieces(R"({"do_lower_case": "no"})"); }),
                 "tokenizer_config.json: do_lower_case: expected true or false, got \"no\""));
  CHECK(contains(error_of<DataError>([&] { (void)pieces("[1]"); }), "expected a JSON object"));
  CHECK(contains(error_of<DataError>([&] { (void)pieces("{"); }), "not readable JSON"));
}

TEST_CASE("vocabularies that are broken are refused with file, line and reason") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const auto wordpiece = [](const std::string& text) {
    return error_of<DataError>([&] { (void)wordpiece_of(text); });
  };
  CHECK(wordpiece(kFewEntries).empty());
  CHECK(contains(wordpiece(""), "vocab.txt: no entry [PAD]"));
  CHECK(contains(wordpiece("[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), "no entry [MASK]"));
  CHECK(contains(wordpiece(std::string(kFewEntries) + "caf\xE9\n"), "vocab.txt:6: byte 4 of"));
  CHECK(contains(wordpiece(std::string(5000, 'x')), "vocab.txt:1"));
  CHECK(contains(error_of<DataError>([] { (void)read_wordpiece("none/vocab.txt"); }), "vocab.txt"));

  const Folder folder;
  CHECK(error_of_bpe(folder, "more.txt", "").empty());
  CHECK(contains(error_of_bpe(folder, "vocab.json", "{"), "vocab.json: not readable JSON"));
  CHECK(contains(error_of_bpe(folder, "vocab.json", "[]"), "no JSON object"));
  CHECK(contains(error_of_bpe(folder, "vocab.json", R"({"a": 0, "b": 2})"), "'b' is 2 of 2"));
  CHECK(
      contains(error_of_bpe(folder, "vocab.json", R"({"a": 0, "b": 0})"), "'b' is 0, as another"));
  CHECK(contains(error_of_bpe(folder, "vocab.json", R"({"a": -1})"), "'a' has no number"));
  CHECK(contains(error_of_bpe(folder, "vocab.json", R"({"a": 0})"), "for the byte 0"));
  CHECK(contains(error_of_bpe(folder, "merges.txt", "#version: 0.2\na b c\n"), "merges.txt:2"));
  CHECK(contains(error_of_bpe(folder, "merges.txt", "ab\n"), "expected two entries"));
  CHECK(contains(error_of_bpe(folder, "merges.txt", "\xEF\xBB\xBF#version: 0.2\n"),
                 "merges.txt:1: a byte order mark, expected merges without one"));
  CHECK(contains(error_of_bpe(folder, "merges.txt", "t qqq\n"), "'qqq' is no entry"));
  CHECK(contains(error_of_bpe(folder, "merges.txt", "q q\n"), "'qq' is no entry"));
}

TEST_CASE("texts that are no UTF-8 are refused with their place") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const auto wordpiece = wordpiece_of(kFewEntries);
  for (const char* text :
       {"caf\xE9", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "a\xE2\x82"}) {
    const std::string error =
        error_of<DataError>([&] { (void)wordpiece->encode(text, "reviews.txt:7"); });
    CAPTURE(error);
    CHECK(contains(error, "reviews.txt:7: byte "));
    CHECK(contains(error, "is no UTF-8"));
  }
  CHECK(contains(error_of([&] { (void)wordpiece->encode("[MASK] caf\xE9", "x"); }), "byte 11"));
}

TEST_CASE("special tokens are the longest from the left, and one may take the spaces before it") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  SpecialTokens tokens;
  for (const SpecialToken& token : {SpecialToken{"<a>", 1},
                                    {"<a>>", 2},
                                    {"<m>", 3, true},
                                    {"<r>", 4, false, true},
                                    {"w", 5, false, false, true}}) {
    tokens.add(token);
  }
  const auto cut = [&](std::string_view text) {
    std::vector<std::pair<std::string, int>> parts;
    for (const TextPart& part : tokens.cut(text)) parts.emplace_back(part.text, part.special);
    return parts;
  };
  using Parts = std::vector<std::pair<std::string, int>>;
  CHECK(cut("").empty());
  CHECK(cut("x<a>>y") == Parts{{"x", -1}, {"<a>>", 2}, {"y", -1}});
  CHECK(cut("<<a><a>") == Parts{{"<", -1}, {"<a>", 1}, {"<a>", 1}});
  CHECK(cut("x \u3000\n<m> <a>") == Parts{{"x", -1}, {"<m>", 3}, {" ", -1}, {"<a>", 1}});
  CHECK(cut(" \t<m>") == Parts{{"<m>", 3}});
  CHECK(cut("x <r> \u3000 y") == Parts{{"x ", -1}, {"<r>", 4}, {"y", -1}});
  CHECK(cut("w-w aw w\u00e9 w") ==
        Parts{{"w", 5}, {"-", -1}, {"w", 5}, {" aw w\u00e9 ", -1}, {"w", 5}});
  // Characters of words, as the expression \w has them: marks (spacing ones, too), digits of other
  // scripts, letters that are numbers or symbols, connectors, joiners.
  for (const char* const beside : {"\u0915\u093F", "\u0301", "\u0663", "\u2167", "\u24B6",
                                   "\U0001F150", "\u203F", "\u200D", "_", "7", "\u597D"}) {
    CAPTURE(beside);
    CHECK(cut(std::string(beside) + "w") == Parts{{std::string(beside) + "w", -1}});
  }
  for (const char* const beside : {"\u00B2", "\u2460", "\u00BD", "\u20AC", "\U0001F600", "."}) {
    CAPTURE(beside);
    CHECK(cut(std::string("w") + beside) == Parts{{"w", 5}, {beside, -1}});
    CHECK(cut(std::string(beside) + "w") == Parts{{beside, -1}, {"w", 5}});
  }
}

TEST_CASE("a long word is joined in a time that grows little faster than its length") {
  if (!here_or_skip(knows_unicode(), "utf8proc")) return;
  const auto bpe = read_byte_level_bpe(kVectors / "bpe");
  const std::string word(400'000, 't');  // the square of it would take minutes
  CHECK(bpe->text_of(bpe->encode(word, "x")) == word);
}

TEST_CASE("SentencePiece: models are learnt, the same for the same texts, and read again") {
  if (!here_or_skip(has_sentencepiece() && knows_unicode(), "SentencePiece or utf8proc")) return;
  const std::vector<std::string> texts = sentences(200);
  for (const char* kind : {"unigram", "bpe"}) {
    CAPTURE(kind);
    const std::string model = learn_sentencepiece({kind, 40}, texts);
    CHECK(model == learn_sentencepiece({kind, 40}, texts));
    const SentencePiece pieces(model, "memory");
    CHECK(pieces.size() > 16);
    CHECK(pieces.size() <= 40);
    const Numbers numbers = pieces.encode("turned boats slowly", "x");
    CHECK(numbers.size() < 12);  // pieces, not letters
    CHECK(pieces.text_of(numbers) == "turned boats slowly");
    CHECK(pieces.encode("\u6f22", "x").back() == 0);  // the unknown
    CHECK(pieces.entry(0) == "<unk>");
    CHECK(contains(error_of([&] { (void)pieces.encode("\xFF", "f:1"); }), "f:1: byte 1"));

    Json provenance = Json::object();
    put_vocabulary(pieces, provenance);
    const auto again = vocabulary_in(parse_json(json_text(provenance)));
    CHECK(again->kind() == "sentencepiece");
    CHECK(again->encode("river boat", "x") == pieces.encode("river boat", "x"));
  }
  CHECK(learn_sentencepiece({"unigram", 40}, texts) != learn_sentencepiece({"bpe", 40}, texts));
}

TEST_CASE("SentencePiece: broken models, and models that cannot be learnt, are refused") {
  const auto refused = [](const char* text) {
    return error_of<UsageError>([&] { (void)parse_sentencepiece_training(text); });
  };
  CHECK(refused("unigram:8000").empty());
  CHECK(refused("bpe:16").empty());
  for (const char* text : {"", "unigram", "bpe:", "bpe:15", "bpe:65537", "bpe:1e3", "words:100"}) {
    CHECK(contains(refused(text), "--learn-tokens: expected unigram:NUMBER or bpe:NUMBER"));
  }
  if (!here_or_skip(has_sentencepiece() && knows_unicode(), "SentencePiece or utf8proc")) return;
  for (const char* bytes : {"", "model", "\x0a\xff\xff\xff\xff\x0f"}) {
    CHECK(contains(error_of<DataError>([&] { (void)SentencePiece(bytes, "m.model"); }),
                   "m.model: not a model of SentencePiece"));
  }
  const auto learn = [](const char* kind, const std::vector<std::string>& texts) {
    return error_of<DataError>([&] { (void)learn_sentencepiece({kind, 16}, texts); });
  };
  // The library itself would end the program on some of these.
  for (const char* kind : {"unigram", "bpe"}) {
    CAPTURE(kind);
    for (const std::vector<std::string>& texts :
         {std::vector<std::string>(), {""}, {" ", "\t\n"}, {"\u200b", "\u0301"}}) {
      CHECK(contains(learn(kind, texts), "nothing to learn from in "));
    }
    CHECK(learn(kind, {std::string(100'000, 'x')}).empty());
    CHECK(learn(kind, {" ", "a\tb"}).empty());
    CHECK(contains(learn(kind, {"a caf\xE9"}), "training text: byte 6"));
    CHECK(contains(learn(kind, {"abcdefghijklmnopqrstuvwxyz"}),
                   "texts: Vocabulary size is smaller than required_chars"));
  }
}

TEST_CASE("SentencePiece: a damaged table of normal forms is refused, or harmless") {
  if (!here_or_skip(has_sentencepiece() && knows_unicode(), "SentencePiece or utf8proc")) return;
  const std::string good = learn_sentencepiece({"unigram", 40}, sentences(200));
  const std::string name = "nmt_nfkc";  // the field before the table, whose size takes three bytes
  const std::size_t table = good.find(name) + name.size() + 4;
  REQUIRE(good.find(name) < good.size());
  REQUIRE(good.size() > table + 100'000);
  std::string texts;  // every character of Latin-1 and some that have normal forms
  for (char32_t c = 0; c < 256; ++c) append_utf8(texts, c);
  texts += "\u1E9B\u0323 \uFB03 \u2460 \u3300 \uAC00 e\u0301 \uFF21 \U0001F600";
  CHECK_NOTHROW((void)SentencePiece(good, "m.model").encode(texts, "x"));
  int refused = 0;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + 40 * (i % 2); ++k) {
      // Near the front are the units that most texts meet.
      const std::size_t at = table + 4 + random() % (i % 3 == 0 ? 2048 : 100'000);
      bad[at] = static_cast<char>(bad[at] ^ (1U << random() % 8));
    }
    const std::string error = error_of<DataError>([&] {
      const SentencePiece pieces(bad, "m.model");
      (void)pieces.encode(texts, "x");
    });
    if (error.empty()) continue;  // the damage was harmless
    CHECK(error == "m.model: precompiled_charsmap is damaged");
    ++refused;
  }
  CHECK(refused > 10);
}

TEST_CASE("--tokens takes a kind, with a file where the kind has one") {
  CHECK(parse_token_choice("words").kind == "words");
  const TokenChoice choice = parse_token_choice("wordpiece:a:b/vocab.txt");
  CHECK(choice.kind == "wordpiece");
  CHECK(choice.from == "a:b/vocab.txt");
  const auto refused = [](const char* text) {
    return error_of<UsageError>([&] { (void)parse_token_choice(text); });
  };
  CHECK(contains(refused("wordpiece"), "expected wordpiece:FILE, got 'wordpiece'"));
  CHECK(contains(refused("bpe:"), "expected bpe:FOLDER"));
  CHECK(contains(refused("bytes:x"), "expected bytes, got 'bytes:x'"));
  CHECK(contains(refused("bytes:"), "expected bytes, got 'bytes:'"));
  CHECK(contains(refused("word:x"), "known: bytes, words, integers, sentencepiece:FILE"));
}
