#include "data/files/digest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace skytape::data {
namespace {

constexpr uint64_t kMultiplier = 0x9fb21c651e98df25u;  // odd: multiplication is a bijection

uint64_t load64(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

constexpr std::array<uint32_t, 64> kSha256Round = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

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

void Sha256::update(std::span<const uint8_t> bytes) {
  size_t fill = length_ % 64;
  length_ += bytes.size();
  while (!bytes.empty()) {
    if (fill == 0 && bytes.size() >= 64) {
      block(bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t part = std::min(64 - fill, bytes.size());
    std::memcpy(pending_.data() + fill, bytes.data(), part);
    bytes = bytes.subspan(part);
    fill += part;
    if (fill == 64) block(pending_.data()), fill = 0;
  }
}

std::string Sha256::hex() {
  const uint64_t bits = length_ * 8;
  const uint8_t one = 0x80, zero = 0;
  update({&one, 1});
  while (length_ % 64 != 56) update({&zero, 1});
  std::array<uint8_t, 8> length;
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(length);
  std::array<uint8_t, 32> digest;
  for (int i = 0; i < 32; ++i) {
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return to_hex(digest);
}

void Sha256::block(const uint8_t* bytes) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{bytes[4 * i]} << 24 | uint32_t{bytes[4 * i + 1]} << 16 |
           uint32_t{bytes[4 * i + 2]} << 8 | bytes[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & f) ^ (~e & g)) + kSha256Round[i] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += sum[i];
}

std::array<uint8_t, 16> md5(std::string_view text) {
  std::string padded(text);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int i = 0; i < 8; ++i) padded += static_cast<char>((text.size() * 8) >> (8 * i));
  constexpr int kShift[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  for (size_t at = 0; at < padded.size(); at += 64) {
    uint32_t word[16];
    std::memcpy(word, padded.data() + at, sizeof word);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 64; ++i) {
      const int round = i / 16;
      const uint32_t f = round == 0   ? (b & c) | (~b & d)
                         : round == 1 ? (d & b) | (~d & c)
                         : round == 2 ? b ^ c ^ d
                                      : c ^ (b | ~d);
      const int pick = (round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i);
      const auto sine = static_cast<uint32_t>(std::floor(std::fabs(std::sin(i + 1)) * 0x1p32));
      const uint32_t turned = a + f + sine + word[pick % 16];
      a = d, d = c, c = b, b += std::rotl(turned, kShift[round][i % 4]);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  }
  std::array<uint8_t, 16> digest;
  std::memcpy(digest.data(), state, sizeof state);
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

std::string to_hex(uint64_t word) {
  std::array<uint8_t, 8> bytes;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(word >> (56 - 8 * i));
  return to_hex(bytes);
}

}  // namespace skytape::data
