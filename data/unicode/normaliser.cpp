#include "data/unicode/normaliser.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

using Text = std::u32string;

std::string from_base64(std::string_view text, const std::string& source) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const auto digits = as_bytes(text);
  const int size = EVP_DecodeBlock(reinterpret_cast<std::uint8_t*>(bytes.data()), digits.data(),
                                   static_cast<int>(digits.size()));
  if (size < 0) {
    throw DataError(fmt::format("{}: normalizer.precompiled_charsmap: not base64", source));
  }
  // The last three bytes may be one or two, filled up with "=".
  bytes.resize(static_cast<std::size_t>(size) - (text.ends_with("==") ? 2 : text.ends_with('=')));
  return bytes;
}

/// SentencePiece's table of normal forms, as a model file holds it: the size of a trie in bytes,
/// the trie (a double array as the library Darts makes it, 32 bits a unit), and the normal forms,
/// each with a zero byte behind it. The numbers are little endian.
class Charsmap {
 public:
  Charsmap(const std::string& bytes, const std::string& source) {
    const auto number = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        value |= std::uint32_t{static_cast<std::uint8_t>(bytes[at + i])} << 8 * i;
      }
      return value;
    };
    const std::size_t size = bytes.size() < 4 ? 0 : number(0);  // of the trie
    if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
      throw DataError(
          fmt::format("{}: normalizer.precompiled_charsmap: broken, a trie of {} bytes in {}",
                      source, size, bytes.size()));
    }
    for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(number(at));
    forms_ = bytes.substr(4 + size);
  }

  /// The normal form of the shortest key that `text` begins with; nothing where there is none.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const {
    std::uint32_t at = offset_of(unit(0));
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      at ^= byte;
      const std::uint32_t here = unit(at);
      if (byte == 0 || (here & 0x8000'00FF) != byte) return {};
      at ^= offset_of(here);
      const bool ends = (here >> 8 & 1) != 0;  // a key; its value is the place of its normal form
      if (!ends) continue;
      const std::size_t form = unit(at) & 0x7FFF'FFFF;
      if (form >= forms_.size()) return {};
      return std::string_view(forms_).substr(form, forms_.find('\0', form) - form);
    }
    return {};
  }

  /// Returns whether no text leads beyond the table, and none to more keys that begin it than
  /// SentencePiece's library has room for: it checks neither.
  [[nodiscard]] bool is_sound() const {
    constexpr std::uint8_t kUnseen = 255, kOpen = 254, kMostKeys = 32;
    struct Node {
      std::uint32_t base;      // its children are the units base ^ byte
      std::uint32_t byte = 0;  // of the child that is next
      std::uint8_t keys = 0;   // most that end below it on one way, of the children so far
    };
    std::vector<std::uint8_t> keys_below(units_.size(), kUnseen);  // [units], of a base
    std::vector<Node> way;                                         // from the root
    const auto enter = [&](std::uint32_t base) {
      if ((base | 0xFF) >= units_.size()) return false;
      keys_below[base] = kOpen;
      way.push_back({base});
      return true;
    };
    if (!enter(offset_of(unit(0)))) return false;
    while (!way.empty()) {
      Node& node = way.back();
      if (node.byte == 256) {
        keys_below[node.base] = node.keys;
        way.pop_back();
        continue;
      }
      const std::uint32_t at = node.base ^ node.byte, here = unit(at);
      if ((here & 0x8000'00FF) != node.byte) {
        ++node.byte;
        continue;
      }
      const std::uint32_t base = at ^ offset_of(here);
      if (base < units_.size() && keys_below[base] == kOpen) return false;  // round and round
      if (base >= units_.size() || keys_below[base] == kUnseen) {
        if (!enter(base)) return false;
        continue;  // to this child again, once what is below it is known
      }
      const bool ends = (here >> 8 & 1) != 0;
      if (ends && (unit(base) & 0x7FFF'FFFF) >= forms_.size()) return false;
      node.keys = std::max<std::uint8_t>(node.keys, keys_below[base] + ends);
      if (node.keys > kMostKeys) return false;
      ++node.byte;
    }
    return true;
  }

  /// By characters as a reader sees them; one that takes six bytes or more by its parts.
  [[nodiscard]] Text normalise(const Text& text) const {
    std::string normal;
    for (const std::u32string_view seen : graphemes(text)) {
      const std::string bytes = encode_utf8(seen);
      const auto whole = bytes.size() < 6 ? find(bytes) : std::nullopt;
      if (whole) {
        normal += *whole;
        continue;
      }
      for (const char32_t c : seen) {
        const std::string one = encode_utf8({&c, 1});
        normal += find(one).value_or(one);
      }
    }
    return decode_utf8(normal, "normalizer.precompiled_charsmap");
  }

 private:
  static std::uint32_t offset_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
  }
  /// A place beyond the trie: a unit that no byte leads to.
  [[nodiscard]] std::uint32_t unit(std::uint32_t at) const {
    return at < units_.size() ? units_[at] : 0;
  }

  std::vector<std::uint32_t> units_;
  std::string forms_;
};

/// Google's rules for machine translation: most control characters go, others are blanks.
Text of_machine_translation(const Text& text) {
  Text plain;
  for (const char32_t c : text) {
    const bool gone = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                      c == 0x8F || c == 0x9F;
    const bool blank = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (!gone) plain += blank ? U' ' : c;
  }
  return plain;
}

Text stripped(const Text& text, bool left, bool right) {
  std::u32string_view rest = text;
  while (left && !rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
  while (right && !rest.empty() && is_space(rest.back())) rest.remove_suffix(1);
  return Text(rest);
}

Text without_marks(Text text) {
  std::erase_if(text, is_mark);
  return text;
}

/// Puts `by` where `part` stands; if `run`, once for several blanks in a row.
Text replaced(const Text& text, std::u32string_view part, std::u32string_view by, bool run) {
  Text all;
  for (std::size_t at = 0; at < text.size();) {
    if (!std::u32string_view(text).substr(at).starts_with(part)) {
      all += text[at++];
      continue;
    }
    all += by;
    at += part.size();
    while (run && at < text.size() && text[at] == part[0]) ++at;
  }
  return all;
}

}  // namespace

void require_sound_charsmap(const std::string& bytes, const std::string& source) {
  if (Charsmap(bytes, source).is_sound()) return;
  throw DataError(fmt::format("{}: precompiled_charsmap is damaged", source));
}

Normaliser::Normaliser(const Json& spec, const std::string& source) {
  try {
    if (!spec.is_null()) add(spec, source);
  } catch (const JsonError& error) {
    throw DataError(fmt::format("{}: normalizer: {}", source, problem_of(error)));
  }
}

void Normaliser::add(const Json& spec, const std::string& source) {
  const auto type = spec.at("type").get<std::string>();
  const auto refuse = [&](const char* expected) {
    refuse_part(source, "normalizer", expected, spec);
  };
  const auto form = [&](NormalForm wanted) {
    steps_.emplace_back([wanted](const Text& text) { return normal_form(text, wanted); });
  };
  if (type == "Sequence") {
    for (const Json& part : spec.at("normalizers")) add(part, source);
  } else if (type == "Precompiled") {
    // Shared: a function may be copied, the table has a quarter of a megabyte.
    const auto map = std::make_shared<const Charsmap>(
        from_base64(spec.at("precompiled_charsmap").get<std::string>(), source), source);
    steps_.emplace_back([map](const Text& text) { return map->normalise(text); });
  } else if (type == "Strip") {
    const bool left = spec.value("strip_left", true), right = spec.value("strip_right", true);
    steps_.emplace_back([left, right](const Text& text) { return stripped(text, left, right); });
  } else if (type == "Replace") {
    const Json& pattern = spec.at("pattern");
    const bool run = member(pattern, "Regex") == Json(" {2,}");
    if (!run && !member(pattern, "String").is_string()) refuse("a text or \" {2,}\" to replace");
    const Text part =
        run ? U"  " : decode_utf8(pattern.at("String").get<std::string>(), "normalizer.pattern");
    const Text by = decode_utf8(spec.at("content").get<std::string>(), "normalizer.content");
    if (part.empty()) refuse("a text that is not empty to replace");
    steps_.emplace_back(
        [part, by, run](const Text& text) { return replaced(text, part, by, run); });
  } else if (type == "Lowercase") {
    steps_.emplace_back([](const Text& text) { return lower_case(text); });
  } else if (type == "StripAccents") {
    steps_.emplace_back(without_marks);
  } else if (type == "Nmt") {
    steps_.emplace_back(of_machine_translation);
  } else if (type == "NFC") {
    form(NormalForm::c);
  } else if (type == "NFD") {
    form(NormalForm::d);
  } else if (type == "NFKC") {
    form(NormalForm::kc);
  } else if (type == "NFKD") {
    form(NormalForm::kd);
  } else {
    refuse(
        "Sequence, Precompiled, Strip, Replace, Lowercase, StripAccents, Nmt, NFC, NFD, NFKC or "
        "NFKD");
  }
}

std::u32string Normaliser::operator()(std::u32string text) const {
  for (const auto& step : steps_) text = step(text);
  return text;
}

}  // namespace skytape::data
