#include "base/digest.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <class Digest>
std::string digest_of(std::string_view text, std::size_t piece = ~std::size_t{0}) {
  Digest digest;
  for (std::size_t at = 0; at < text.size(); at += std::min(piece, text.size() - at))
    digest.update(bytes_of(text.substr(at, piece)));
  return digest.hex();
}

// FIPS 180-4's examples, and the million of 'a' of its test vectors.
TEST(Digest, KnownValues) {
  EXPECT_EQ(digest_of<Sha256>(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of<Sha256>("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of<Sha256>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of<Sha256>(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest_of<Sha1>(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(digest_of<Sha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest_of<Sha1>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(digest_of<Sha1>(std::string(1'000'000, 'a')),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(digest_of<Sha1>(std::string_view("blob 0\0", 7)),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST(Digest, PiecesMakeNoDifference) {
  std::mt19937 gen(7);
  for (const std::size_t length : {1u, 55u, 56u, 63u, 64u, 65u, 119u, 120u, 127u, 128u, 1000u}) {
    std::string text(length, '\0');
    for (char& c : text) c = static_cast<char>(gen());
    for (const std::size_t piece : {1u, 7u, 63u, 64u, 65u}) {
      EXPECT_EQ(digest_of<Sha256>(text, piece), digest_of<Sha256>(text)) << length << ' ' << piece;
      EXPECT_EQ(digest_of<Sha1>(text, piece), digest_of<Sha1>(text)) << length << ' ' << piece;
    }
  }
}

TEST(Digest, BothFormsOfSha256Agree) {
  std::mt19937 gen(3);
  std::array<std::byte, 64 * 9> blocks;
  for (std::byte& b : blocks) b = static_cast<std::byte>(gen());
  std::array<std::uint32_t, 8> portable, native;
  for (std::uint32_t& word : portable) word = gen();
  native = portable;
  sha256_compress_portable(portable.data(), blocks.data(), 9);
  if (has_sha256_instructions())
    sha256_compress_native(native.data(), blocks.data(), 9);
  else
    sha256_compress_portable(native.data(), blocks.data(), 9);
  EXPECT_EQ(portable, native);
}

}  // namespace
}  // namespace sluice
