#include "data/tokenisers/files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kLargestConfig = 16 << 20;  // bytes; some list thousands of added tokens

constexpr const char* kNamed[] = {
    "bos_token",           "eos_token", "unk_token",  "sep_token",
    "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
    "extra_special_tokens"};

/// The JSON object in a file; empty where there is no file.
Json read_if_there(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  Json json = read_json_file(path, kLargestConfig);
  if (!json.is_object()) {
    throw DataError(fmt::format("{}: expected a JSON object, got {}", path.string(),
                                printable(json_text(json), 200)));
  }
  return json;
}

/// A token's text: a text, or {"content": …}. Refuses anything else. `part`: where it stands in the
/// file `source`.
std::string content_of(const Json& token, const std::string& source, const std::string& part) {
  const Json& content = token.is_object() ? member(token, "content") : token;
  if (!content.is_string()) {
    refuse_part(source, part, R"(a text, or {"content": a text, …})", token);
  }
  return content.get<std::string>();
}

/// Refuses a token whose flags are none. `part`: where it stands in the file `source`.
void check_flags(const Json& token, const std::string& source, const std::string& part) {
  for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
    const Json& value = member(token, flag);
    if (value.is_null() || value.is_boolean()) continue;
    refuse_part(source, fmt::format("{}, {}", part, flag), "true or false", value);
  }
}

/// A token, and the file that says it.
struct AddedToken {
  SpecialToken token;
  std::string source;
};

/// Takes what files say of tokens; what is said first counts.
class AddedTokens {
 public:
  /// `token`: its text, or an object with it and how it is sought; in the file `source` at `part`.
  void add(const Json& token, std::int64_t number, const std::string& source,
           const std::string& part) {
    check_flags(token, source, part);
    const auto flag = [&](const char* key) { return member(token, key) == true; };
    take({{content_of(token, source, part), static_cast<std::int32_t>(number), flag("lstrip"),
           flag("rstrip"), flag("single_word"), flag("normalized")},
          source});
  }
  void take(const AddedToken& added) {
    if (!added.token.text.empty() && find(added.token.text) == nullptr) all_.push_back(added);
  }
  void add_named(const Json& config, const std::string& source) {
    for (const char* key : kNamed) {
      const Json& value = member(config, key);
      if (value.is_null()) continue;
      if (value.is_array() || (value.is_object() && !value.contains("content"))) {
        for (const Json& token : value) add(token, -1, source, key);
      } else {
        add(value, -1, source, key);
      }
    }
  }
  /// Returns the token with that text; nullptr: there is none.
  [[nodiscard]] const AddedToken* find(const std::string& text) const {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const AddedToken& a) { return a.token.text == text; });
    return found == all_.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::vector<AddedToken>& all() { return all_; }

 private:
  std::vector<AddedToken> all_;
};

/// Refuses a token that is no object with a text and a number, or whose flags are none.
void check_added(const Json& listed, const std::string& source) {
  if (listed.is_null()) return;
  const std::string expected = R"({"id": a natural number, "content": a text, …})";
  if (!listed.is_array()) refuse_part(source, "added_tokens", "a list of " + expected, listed);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const Json& token = listed[i];
    const std::string part = fmt::format("added_tokens, entry {}", i + 1);
    const Json& id = member(token, "id");
    const bool numbered = id.is_number_unsigned() &&
                          id.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostEntries);
    if (!numbered || !member(token, "content").is_string()) {
      refuse_part(source, part, expected, token);
    }
    check_flags(token, source, part);
  }
}

/// Gives the tokens their places among the entries. Those that have none are left out.
std::vector<SpecialToken> placed(std::vector<AddedToken> tokens,
                                 std::vector<std::string>& entries) {
  // By number, so that they go on from the entries one by one.
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.token.number < b.token.number; });
  std::vector<SpecialToken> found;
  for (auto& [token, source] : tokens) {
    const auto at = static_cast<std::size_t>(token.number);
    if (token.number < 0) {
      const auto entry = std::find(entries.begin(), entries.end(), token.text);
      if (entry == entries.end()) continue;
      token.number = static_cast<std::int32_t>(entry - entries.begin());
    } else if (at == entries.size()) {
      entries.push_back(token.text);
      token.piece = false;
    } else if (at > entries.size() || entries[at] != token.text) {
      throw DataError(fmt::format(
          "{}: the added token '{}' has number {}, expected {}", source, printable(token.text), at,
          at > entries.size()
              ? fmt::format("{}, behind the last entry", entries.size())
              : fmt::format("that of another entry than '{}'", printable(entries[at]))));
    }
    found.push_back(std::move(token));
  }
  return found;
}

/// `listed`: the added tokens of `file`, a tokenizer.json, or null.
std::vector<SpecialToken> add_tokens(const Json& listed, const std::filesystem::path& file,
                                     const std::filesystem::path& folder,
                                     std::vector<std::string>& entries) {
  const std::string config_file = (folder / "tokenizer_config.json").string();
  const std::string map_file = (folder / "special_tokens_map.json").string();
  const std::string numbers_file = (folder / "added_tokens.json").string();
  AddedTokens added;
  for (const Json& token : listed) {
    added.add(token, token.at("id").get<std::int64_t>(), file.string(), "added_tokens");
  }
  const Json config = read_if_there(config_file);
  const Json& decoder = member(config, "added_tokens_decoder");
  if (!decoder.is_null() && !decoder.is_object()) {
    refuse_part(config_file, "added_tokens_decoder", "an object of numbers and tokens", decoder);
  }
  for (const auto& [number, token] : decoder.items()) {
    const auto id = number_in<std::int64_t>(number);
    if (!id || *id < 0 || *id > kMostEntries) {
      refuse_part(config_file, "added_tokens_decoder", "natural numbers as keys", Json(number));
    }
    added.add(token, *id, config_file, fmt::format("added_tokens_decoder, {}", *id));
  }
  AddedTokens named;
  named.add_named(config, config_file);
  named.add_named(read_if_there(map_file), map_file);
  const Json numbered = read_if_there(numbers_file);
  for (const auto& [text, number] : numbered.items()) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > kMostEntries) {
      throw DataError(fmt::format("{}: '{}': expected its number in 0..{}, got {}", numbers_file,
                                  printable(text), kMostEntries,
                                  printable(json_text(number), 200)));
    }
    const AddedToken* const same = named.find(text);
    AddedToken token{same != nullptr ? same->token : SpecialToken{}, numbers_file};
    if (same == nullptr) {
      token.token.text = text;
      token.token.normalised = true;  // what no file calls special is a word
    }
    token.token.number = static_cast<std::int32_t>(number.get<std::int64_t>());
    added.take(token);
  }
  for (const AddedToken& token : named.all()) added.take(token);
  return placed(std::move(added.all()), entries);
}

}  // namespace

std::vector<SpecialToken> add_tokens(const std::filesystem::path& folder,
                                     std::vector<std::string>& entries) {
  return add_tokens(nullptr, {}, folder, entries);
}

std::vector<SpecialToken> add_tokens(const TokenizerJson& json, std::vector<std::string>& entries) {
  return add_tokens(json.part("added_tokens"), json.file(), json.file().parent_path(), entries);
}

Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const auto stream = open_file(path);
  const std::vector<std::uint8_t> bytes = read_all(*stream, path.string(), most_bytes);
  try {
    return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& error) {
    throw DataError(
        fmt::format("{}: not readable JSON: {}", path.string(), printable(problem_of(error), 300)));
  }
}

bool flag_in(const Json& part, const std::string& key, bool otherwise, const std::string& source,
             const std::string& part_name) {
  const Json& value = member(part, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse_part(source, part_name + "." + key, "true or false", value);
  return value.get<bool>();
}

TokeniserConfig::TokeniserConfig(const std::filesystem::path& folder)
    : path_(folder / "tokenizer_config.json"), config_(read_if_there(path_)) {}

bool TokeniserConfig::flag(std::string_view key, bool otherwise) const {
  const Json& value = member(config_, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) {
    throw DataError(fmt::format("{}: {}: expected true or false, got {}", path_.string(), key,
                                printable(json_text(value))));
  }
  return value.get<bool>();
}

void TokeniserConfig::require_same(std::string_view key, bool value,
                                   const std::string& part) const {
  const Json& of = member(config_, "tokenizer_class");
  if (of == "PreTrainedTokenizerFast" || of == "TokenizersBackend") return;
  if (flag(key, value) == value) return;
  throw DataError(fmt::format(
      "{}: {} is {}, but {} of the tokenizer.json next to it is {}: expected the same in both",
      path_.string(), key, !value, part, value));
}

void TokeniserConfig::require(const char* key, const Json& wanted) const {
  const Json& value = member(config_, key);
  if (value.is_null() || value == wanted) return;
  refuse_part(path_.string(), key, json_text(wanted), value);
}

std::vector<std::string> entries_in(const Json& vocabulary, const std::string& name) {
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format(
        "{}: {}; expected {{\"entry\": number, …}} with the numbers 0, 1, …", name, what));
  };
  if (!vocabulary.is_object()) fail("no JSON object");
  const std::size_t count = vocabulary.size();
  std::vector<std::string> entries(count);
  std::vector<bool> taken(count);
  for (const auto& [entry, value] : vocabulary.items()) {
    const std::string shown = printable(entry);
    if (!value.is_number_unsigned()) fail(fmt::format("'{}' has no number", shown));
    const auto number = value.get<std::uint64_t>();
    if (number >= count) fail(fmt::format("'{}' is {} of {} entries", shown, number, count));
    if (taken[number]) fail(fmt::format("'{}' is {}, as another entry is", shown, number));
    taken[number] = true;
    entries[number] = entry;
  }
  return entries;
}

TokenizerJson::TokenizerJson(const std::filesystem::path& file)
    : file_(file), content_(read_json_file(file, kLargestFile)) {
  if (!content_.is_object() || !member(content_, "model").is_object()) {
    refuse("model", "an object with the entries", member(content_, "model"));
  }
  check_added(part("added_tokens"), file_.string());
}

std::string TokenizerJson::model_type() const {
  const Json& type = member(content_, "model", "type");
  if (type.is_string()) return type.get<std::string>();
  // Older files do not say it.
  if (member(content_, "model", "vocab").is_array()) return "Unigram";
  return member(content_, "model").contains("merges") ? "BPE" : "WordPiece";
}

void TokenizerJson::refuse(const std::string& part, const std::string& expected,
                           const Json& got) const {
  refuse_part(file_.string(), part, expected, got);
}

void TokenizerJson::require_model(const char* type) const {
  if (model_type() != type) refuse("model.type", type, Json(model_type()));
}

void TokenizerJson::require(const char* part, const char* key, const Json& wanted) const {
  const Json& value = member(content_, part, key);
  if (value.is_null() || value == wanted) return;
  refuse(fmt::format("{}.{}", part, key), json_text(wanted), value);
}

void TokenizerJson::require_ends(const SpecialToken& first, const SpecialToken& last) const {
  const Json& processor = part("post_processor");
  const Json& type = member(processor, "type");
  bool same = false;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto is = [](const Json& pair, std::int32_t number) {
      return pair.is_array() && pair.size() == 2 && pair[1] == number;
    };
    same = is(member(processor, "cls"), first.number) && is(member(processor, "sep"), last.number);
  } else if (type == "TemplateProcessing") {
    const auto is = [&](const Json& piece, std::int32_t number) {
      const Json& token = member(piece, "SpecialToken");
      const Json& name = member(token, "id");
      return name.is_string() && member(token, "type_id") == 0 &&
             member(processor, "special_tokens", name.get<std::string>(), "ids") ==
                 Json::array({number});
    };
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json& pieces = member(processor, "single");
    same = pieces.is_array() && pieces.size() == 3 && is(pieces[0], first.number) &&
           pieces[1] == text && is(pieces[2], last.number);
  }
  if (same) return;
  refuse("post_processor",
         fmt::format("BertProcessing, RobertaProcessing or TemplateProcessing that puts {} ({}) in "
                     "front of a text and {} ({}) behind it, with type 0",
                     printable(first.text), first.number, printable(last.text), last.number),
         processor);
}

void TokenizerJson::require_same(const std::filesystem::path& other,
                                 const std::vector<std::string>& theirs,
                                 const std::vector<std::string>& ours) const {
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::string here = i < ours.size() ? fmt::format("'{}'", printable(ours[i])) : "nothing";
    if (i < ours.size() && theirs[i] == ours[i]) continue;
    throw DataError(
        fmt::format("{}: number {} is '{}', but {} in {}: expected the same in both, or one file",
                    other.string(), i, printable(theirs[i]), here, file_.string()));
  }
}

std::vector<std::string> TokenizerJson::entries() const {
  Json all = member(content_, "model", "vocab");
  if (!all.is_object()) refuse("model.vocab", "an object of entries and numbers", all);
  for (const Json& token : part("added_tokens")) {
    const auto content = token.at("content").get<std::string>();
    if (!all.contains(content)) all[content] = token.at("id");
  }
  return entries_in(all, file_.string());
}

}  // namespace skytape::data
