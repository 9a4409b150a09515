// The keys of recipes and of --set, a row each: legal values, default, what the value shapes, the
// member of RunConfig that it fills, and its meaning. Help, config.json, the check of --resume,
// what --init takes over and what a checkpoint says of its model all walk these rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::train {

struct RunConfig;

enum class KeyKind { integer, real, flag, choice, weights };

/// The kind of examples that a key needs.
enum class Of { any, pixels, pairs };

/// Legal values.
struct Range {
  KeyKind kind;
  double low = 0, high = 1;       // of a number, both ends included
  std::string_view choices = {};  // "a|b|c"
  bool odd = false;               // of integers: 0 or an odd one
  Of of = Of::any;                // elsewhere the default alone has a meaning
};

/// The part of a run that a key decides. `encoder`: the encoder, which a run of --init takes over.
/// `model`: the rest of the model. `schedule`: the training. `data`: the examples it sees.
enum class Category { encoder, model, schedule, data };

/// Values of another key that leave a key without effect, "a|b".
struct Idle {
  std::string_view key = {}, values = {};
};

struct KeyInfo {
  std::string_view key;
  std::string_view standard;  // default; empty: a recipe, or the task, says it
  Range range;
  Category category;
  /// Puts the checked text of a value into its member; nullptr: resolve() and the method read it.
  void (*fill)(RunConfig&, const KeyInfo&, const std::string&);
  std::string_view meaning;
  Idle idle = {};
  /// The name of the value in tables of results, unless it is the default, as an addition to the
  /// papers' model, in the order of the rows; {} stands for the value. Empty: they do not name it.
  std::string_view adds = {};
};

/// All keys in the order in which they are printed.
[[nodiscard]] std::span<const KeyInfo> recipe_keys();

/// The key of that name or nullptr.
[[nodiscard]] const KeyInfo* find_key(std::string_view key);

/// The key that other programs call `name`, in any spelling: "lr" of "learning_rate" and
/// "learning-rate". Empty if there is none.
[[nodiscard]] std::string_view key_called(std::string_view name);

/// "unknown key 'warmpu' (did you mean 'warmup'?); `skytape info recipe` lists the keys": of the
/// keys of a run, which are too many to be listed.
[[nodiscard]] std::string unknown_key(std::string_view key, const std::vector<std::string>& known);

/// "1..65536", "0..255, odd; pixels", "0|1", "length|nonzero",
/// "none, balanced, or a number for each class, up to 1000000 and one above 0: 1,2.5".
[[nodiscard]] std::string range_of(const KeyInfo& key);

/// UsageError unless `text` is a legal value.
void check_value(const KeyInfo& key, const std::string& text);

/// The numbers of "1,2.5", one for each class; none of "none" and "balanced". UsageError for
/// anything else.
[[nodiscard]] std::vector<double> parse_class_weights(const std::string& text);

/// A legal value of an integer's key.
[[nodiscard]] std::int64_t whole_number(const KeyInfo& key, const std::string& text);

/// Returns whether `word` is one of "a|b|c".
[[nodiscard]] bool is_among(std::string_view choices, std::string_view word);

}  // namespace skytape::train
