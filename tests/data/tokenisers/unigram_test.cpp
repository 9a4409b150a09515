// Unigram from a tokenizer.json: the numbers of Hugging Face's tokenisers on hostile texts, by the
// normalisers and cuts that real files have, and what of a file is not supported.
#include "data/tokenisers/unigram.hpp"

#include <fmt/format.h>

#include "data/files/json.hpp"
#include "data/tokenisers/files.hpp"
#include "data/unicode/normaliser.hpp"
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

const fs::path kFiles = "tests/goldens/tokenisers/unigram";  // from the repository's root

Json pieces() { return parse_json(read_file(kFiles / "tokenizer.json")); }

/// The tokeniser with these pieces and one of the kinds of normaliser and cut.
std::shared_ptr<const Unigram> unigram_with(const Folder& folder, const Json& parts,
                                            Json json = pieces()) {
  json["normalizer"] = member(parts, "normalizer");
  json["pre_tokenizer"] = member(parts, "pre_tokenizer");
  json["model"]["byte_fallback"] = parts.value("byte_fallback", false);
  return unigram_of(TokenizerJson(folder.write("tokenizer.json", json_text(json))));
}

Numbers numbers_of(const Json& values) {
  const auto wide = values.get<std::vector<std::int64_t>>();
  return {wide.begin(), wide.end()};
}

}  // namespace

TEST_CASE("Unigram gives Hugging Face's numbers on hostile texts, however a file normalises") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const Json vectors = parse_json(read_file(kFiles / "vectors.json"));
  CHECK(vectors.size() > 300);
  const Json kinds = parse_json(read_file(kFiles / "parts.json"));
  CHECK(kinds.size() == 8);
  for (const auto& [name, parts] : kinds.items()) {
    const auto unigram = unigram_with(folder, parts);
    Json provenance = Json::object();
    put_vocabulary(*unigram, provenance);
    const auto again = vocabulary_in(parse_json(json_text(provenance, {.ascii = true})));
    CHECK(again->size() == unigram->size());
    for (const Json& vector : vectors) {
      CAPTURE(name);
      CAPTURE(json_text(vector["text"], {.ascii = true}));
      const auto text = vector.at("text").get<std::string>();
      CHECK(unigram->encode(text, "vector") == numbers_of(vector.at(name)));
      CHECK(again->encode(text, "vector") == numbers_of(vector.at(name)));
    }
  }
}

TEST_CASE("Unigram takes the longer of two ways alike, and what is unknown where that is better") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  Json json = pieces();
  json["added_tokens"] = Json::array();
  json["model"]["vocab"] = parse_json(
      R"([["<unk>", 0], ["ab", -2], ["a", -1], ["b", -1], ["xy", -50], ["yy", -1], ["y", -60]])");
  json["model"]["unk_id"] = 0;
  const auto unigram = unigram_with(folder, Json::object(), json);
  CHECK(unigram->encode("ab", "text") == Numbers{1});
  CHECK(unigram->encode("xyy", "text") == Numbers{0, 5});  // -70 - 1, not -50 - 60
}

TEST_CASE(
    "the piece of what is unknown is unknown where a text has it, and one with its neighbours") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  Json json = pieces();
  json["added_tokens"] = Json::array();
  json["model"]["vocab"] = parse_json(R"([["<unk>", 0], ["a", -1]])");
  json["model"]["unk_id"] = 0;
  const auto unigram = unigram_with(folder, Json::object(), json);
  CHECK(unigram->encode("a<unk>a", "text") == Numbers{1, 0, 1});
  CHECK(unigram->encode("a<unk>x<unk>a", "text") == Numbers{1, 0, 1});
  for (int byte = 0; byte < 256; ++byte) {
    json["model"]["vocab"].push_back(Json::array({fmt::format("<0x{:02X}>", byte), -9}));
  }
  const auto bytes = unigram_with(folder, {{"byte_fallback", true}}, json);
  CHECK(bytes->encode("<unk>a", "text") == Numbers{0, 1});
  Numbers whole;
  for (const char c : std::string("<unk>x")) whole.push_back(2 + c);
  CHECK(bytes->encode("<unk>x", "text") == whole);
}

TEST_CASE("Unigram's tokens are texts again, and characters that are no piece are their bytes") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const Json cut = {{"pre_tokenizer", {{"type", "Metaspace"}}}};
  const auto unigram = unigram_with(folder, cut);
  CHECK(unigram->text_of(unigram->encode("the film was good", "x")) == "the film was good");
  CHECK(unigram->entry(unigram->end_of_text()) == "</s>");
  const Json of_bytes = parse_json(read_file(kFiles / "parts.json"))["bytes"];
  CHECK(of_bytes.is_object());
  const auto bytes = unigram_with(folder, of_bytes);
  CHECK(bytes->text_of(bytes->encode("the ☃ film", "x")) == "the ☃ film");
}

TEST_CASE("of a tokenizer.json with Unigram the part that is not supported is named") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const auto error = [&](const char* part, const Json& value) {
    Json parts = {{"pre_tokenizer", {{"type", "Metaspace"}}}};
    parts[part] = value;
    return error_of<DataError>([&] { (void)unigram_with(folder, parts); });
  };
  const auto says = [&](const char* part, const Json& value, const char* what) {
    const std::string message = error(part, value);
    CAPTURE(message);
    CHECK(contains(message, what));
  };
  CHECK(error("normalizer", nullptr).empty());
  says("normalizer", {{"type", "BertNormalizer"}}, "normalizer: expected Sequence, Precompiled");
  says("normalizer", Json::object(), "normalizer: key 'type' not found");
  says("normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "b"}},
       "to replace");
  says("normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "b"}},
       "not empty");
  for (const char* broken : {"", "AAAA", "BAAAAA==", "&"}) {
    says("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", broken}},
         "precompiled_charsmap");
  }
  says("pre_tokenizer", {{"type", "ByteLevel"}}, "pre_tokenizer: expected Metaspace, or");
  says("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}}, "replacement: expected");
  says("pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "last"}}, "got \"last\"");
  says("pre_tokenizer", "Metaspace", "pre_tokenizer: expected Metaspace, or");
  says("pre_tokenizer", {{"type", 3}}, "pre_tokenizer: expected Metaspace, or");
  says("pre_tokenizer", {{"type", "Sequence"}}, "pre_tokenizer.pretokenizers: expected a list");
  for (const char* key : {"split", "add_prefix_space", "prepend_scheme", "replacement"}) {
    says("pre_tokenizer", {{"type", "Metaspace"}, {key, 3}},
         fmt::format("tokenizer.json: pre_tokenizer.{}: expected ", key).c_str());
  }
  const auto model_error = [&](const char* key, const Json& value) {
    Json json = pieces();
    json["model"][key] = value;
    return error_of<DataError>([&] { (void)unigram_with(folder, Json::object(), json); });
  };
  CHECK(contains(model_error("unk_id", 100'000), "model.unk_id: expected the number of a piece"));
  Json fallback = pieces();
  fallback["model"]["byte_fallback"] = "yes";
  const auto file = folder.write("fallback.json", json_text(fallback));
  CHECK(contains(error_of<DataError>([&] { (void)unigram_of(TokenizerJson(file)); }),
                 "fallback.json: model.byte_fallback: expected true or false"));
  CHECK(contains(model_error("vocab", Json::array()), "expected 3, behind the last entry"));
  CHECK(contains(model_error("vocab", Json::array({"a"})), "model.vocab: expected pieces"));
  CHECK(contains(model_error("type", "BPE"), "model.type: expected Unigram"));
  Json none = pieces();
  none["model"].erase("unk_id");
  const auto unigram = unigram_with(folder, Json::object(), none);
  CHECK(contains(error_of<DataError>([&] { (void)unigram->encode("☃", "own:7"); }), "own:7: '"));
}

TEST_CASE(
    "a table of normal forms that leads beyond its end, in rounds or to many keys is damaged") {
  // Keys "a", "aa", …: node k has its children at the base 256 k; its key's form is at the base.
  const auto error = [](std::size_t keys, auto change) {
    std::vector<std::uint32_t> units(256 * (keys + 2), 0x8000'0000);  // the form at place 0
    constexpr std::uint32_t kEnds = 0x100;
    const auto unit_at = [](std::size_t at, std::size_t base) {
      return static_cast<std::uint32_t>((at ^ base) << 10);
    };
    units[0] = unit_at(0, 256);
    for (std::size_t k = 1; k <= keys; ++k) {
      const std::size_t at = (256 * k) ^ 'a';
      units[at] = unit_at(at, 256 * (k + 1)) | kEnds | 'a';
    }
    change(units);
    std::string bytes;
    const auto append = [&](std::uint32_t value) {
      for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> 8 * i);
    };
    append(static_cast<std::uint32_t>(4 * units.size()));
    for (const std::uint32_t unit : units) append(unit);
    bytes += std::string("b\0c\0", 4);
    return error_of<DataError>([&] { require_sound_charsmap(bytes, "m.model"); });
  };
  using Units = std::vector<std::uint32_t>;
  const char* const damaged = "m.model: precompiled_charsmap is damaged";
  CHECK(error(0, [](Units&) {}).empty());
  CHECK(error(32, [](Units&) {}).empty());
  CHECK(error(33, [](Units&) {}) == damaged);
  CHECK(error(2, [](Units& units) { units[512] = 0x8000'0003; }).empty());
  CHECK(error(2, [](Units& units) { units[512] = 0x8000'0004; }) == damaged);
  CHECK(error(2, [](Units& units) { units.pop_back(); }) == damaged);
  const std::uint32_t to_root = ((512 ^ 'a' ^ 256) << 10) | 'a';
  CHECK(error(2, [&](Units& units) { units[512 ^ 'a'] = to_root; }) == damaged);
  CHECK(error(2, [](Units& units) { units[0] = 1024 << 10; }) == damaged);
  // Far away, by the bit that shifts an offset by eight more.
  CHECK(error(2, [](Units& units) { units[512 ^ 'a'] |= 0x200; }) == damaged);
  // Two keys may end alike: they share what is below them.
  const std::uint32_t shared = ((256 ^ 'b' ^ 512) << 10) | 0x100 | 'b';
  CHECK(error(2, [&](Units& units) { units[256 ^ 'b'] = shared; }).empty());
  CHECK(contains(error_of<DataError>([] { require_sound_charsmap("AAA", "m.model"); }),
                 "m.model: normalizer.precompiled_charsmap: broken"));
}
