// Digests: a fast checksum for our own files; for other people's SHA-256 and MD5, by libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // EVP_MD_CTX

namespace skytape::data {

/// A bijection of 64-bit words whose output bits each depend on every input bit (the finaliser of
/// SplitMix64: Steele, Lea, Flood 2014).
[[nodiscard]] constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// 64-bit checksum. Any change within one aligned 8-byte word changes it with certainty, any other
/// change with probability 1 - 2^-64; not against forgery.
[[nodiscard]] uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed = 0);

/// SHA-256, fed piecewise.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);
  /// 64 hexadecimal digits; the object is spent afterwards.
  [[nodiscard]] std::string hex();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> state_;
};

/// MD5 of a short text.
[[nodiscard]] std::array<uint8_t, 16> md5(std::string_view text);

/// Lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(std::span<const uint8_t> bytes);
[[nodiscard]] std::string to_hex(uint64_t word);

inline std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace skytape::data
