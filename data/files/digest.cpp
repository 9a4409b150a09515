#include "data/files/digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <cstring>

#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr uint64_t kMultiplier = 0x9fb21c651e98df25u;  // odd: multiplication is a bijection

uint64_t load64(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// Every call to libcrypto: none has a reason to fail, short of memory.
void succeed(int result) { ENSURE(result == 1, "libcrypto refused to compute a digest"); }

}  // namespace

uint64_t checksum(std::span<const uint8_t> bytes, uint64_t seed) {
  uint64_t lane[4] = {seed + 1, seed + 2, seed + 3, seed + 4};
  const uint8_t* at = bytes.data();
  const uint8_t* const end = at + bytes.size();
  for (; end - at >= 32; at += 32) {  // four lanes hide the latency of the multiplication
    for (int i = 0; i < 4; ++i) {
      lane[i] = (std::rotl(lane[i], 29) ^ load64(at + 8 * i)) * kMultiplier;
    }
  }
  uint8_t tail[32] = {};
  if (at != end) std::memcpy(tail, at, end - at);
  for (int i = 0; i < 4; ++i) {
    lane[i] = (std::rotl(lane[i], 29) ^ load64(tail + 8 * i)) * kMultiplier;
  }
  uint64_t sum = mix64(bytes.size() ^ seed);
  for (const uint64_t word : lane) sum = mix64(std::rotl(sum, 17) ^ word);
  return sum;
}

Sha256::Sha256() : state_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  succeed(EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const uint8_t> bytes) {
  succeed(EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  std::array<uint8_t, 32> digest;
  succeed(EVP_DigestFinal_ex(state_.get(), digest.data(), nullptr));
  return to_hex(digest);
}

std::array<uint8_t, 16> md5(std::string_view text) {
  std::array<uint8_t, 16> digest;
  succeed(EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_md5(), nullptr));
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string to_hex(uint64_t word) { return fmt::format("{:016x}", word); }

}  // namespace skytape::data
