// A blob during its download. Pieces arrive in any order, completed pieces survive the process, and
// the digest is checked before the blob gets its name.
//
// The file is blobs/<digest>.<8 hexadecimal digits>.incomplete, and this object's alone. A name
// common to several processes would be corrupted if a file system's locks do nothing
// (huggingface_hub #4306). After the bytes of the blob come a header and one byte for each
// completed piece; they are cut off at the end. With a working lock the file of an earlier process
// (of this form, or the beginning of a file as other clients leave it) is taken over by a rename.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hub/hub_cache.h"

namespace sluice {

class PartialBlob {
 public:
  // `digest` is 64 digits of SHA-256 or 40 of git's SHA-1 of `size` bytes. `may_claim`: the lock of
  // the digest is held and real. Error{kBadInput} if the file cannot be created.
  PartialBlob(const RepoCache& cache, std::string digest, std::uint64_t size, bool may_claim);
  ~PartialBlob();
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  std::size_t num_pieces() const { return done_.size(); }
  std::uint64_t begin(std::size_t piece) const { return piece * piece_bytes_; }
  std::uint64_t end(std::size_t piece) const {
    return std::min(size_, begin(piece) + piece_bytes_);
  }
  bool is_done(std::size_t piece) const;
  std::uint64_t done_bytes() const;
  bool was_resumed() const { return resumed_; }

  // Any thread, on different bytes. Error{kBadInput} when the disk is full.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void mark_done(std::size_t piece);
  // Hashes the completed bytes from the start on, unless another thread does so.
  void advance_digest();

  // Called by one thread when all pieces are done. True if the digest is right: the blob then has
  // its name and is on the disk. False if it is wrong: then no piece is complete any more.
  bool finish();
  // The digest of the wrong contents, after finish() returned false.
  const std::string& found_digest() const { return found_digest_; }

 private:
  struct Digest;
  bool claim_leftover();
  bool read_marks();
  void begin_anew();
  void hash_done_pieces();
  std::uint64_t marks_at() const;

  const RepoCache& cache_;
  const std::string digest_;
  const std::uint64_t size_;
  std::uint64_t piece_bytes_;
  std::string path_;
  int descriptor_ = -1;
  bool resumed_ = false;
  std::string found_digest_;
  mutable std::mutex mutex_;
  std::vector<bool> done_;  // guarded by mutex_
  std::mutex digest_mutex_;
  std::unique_ptr<Digest> hashed_;  // guarded by digest_mutex_
};

// Piece size for a blob of this size: about 64 pieces of whole MiB, from 1 to 32.
std::uint64_t piece_bytes_of(std::uint64_t size);

}  // namespace sluice
