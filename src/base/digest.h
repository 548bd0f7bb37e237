// SHA-256 and SHA-1 (FIPS 180-4) of bytes that arrive in pieces, for files whose digest is known in
// advance.
//
//   Sha256 digest;
//   digest.update(bytes);
//   digest.hex() == "ba7816bf..."
//
// SHA-256 uses the processor's SHA instructions if there are any. SHA-1 exists because git names
// objects by it; it protects against accidents, not against an attacker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice {

// The buffering of both digests: whole blocks of 64 bytes go to the compression function.
class DigestBuffer {
 public:
  using Compress = void (*)(std::uint32_t* state, const std::byte* blocks, std::size_t count);

  void update(Compress compress, std::uint32_t* state, std::span<const std::byte> bytes);
  // Appends the padding and the length in bits.
  void finish(Compress compress, std::uint32_t* state);

 private:
  std::array<std::byte, 64> held_{};
  std::uint64_t num_bytes_ = 0;
};

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes) { buffer_.update(compress_, state_.data(), bytes); }
  // 64 hexadecimal digits of all bytes so far. Afterwards the object must not be used.
  std::string hex();

 private:
  DigestBuffer::Compress compress_;
  DigestBuffer buffer_;
  std::array<std::uint32_t, 8> state_;
};

class Sha1 {
 public:
  Sha1();
  void update(std::span<const std::byte> bytes);
  // 40 hexadecimal digits, as Sha256::hex.
  std::string hex();

 private:
  DigestBuffer buffer_;
  std::array<std::uint32_t, 5> state_;
};

// The constants of SHA-256's 64 rounds.
extern const std::uint32_t kSha256Rounds[64];

// The two forms of SHA-256's compression function, for the test that compares them.
void sha256_compress_portable(std::uint32_t* state, const std::byte* blocks, std::size_t count);
void sha256_compress_native(std::uint32_t* state, const std::byte* blocks, std::size_t count);
// Whether this processor has the instructions of the native form.
bool has_sha256_instructions();

}  // namespace sluice
