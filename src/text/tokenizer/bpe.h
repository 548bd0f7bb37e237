// Byte-pair encoding: the vocabulary, the merges, and a piece of text to token ids.
// Source: Sennrich et al. 2016, section 3.2; tokenizers `models/bpe/`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice {

// Token texts by id, and ids by text. Ids may have gaps.
class TokenTable {
 public:
  static constexpr std::int64_t kMaxId = (1 << 24) - 1;

  // Adds a token. Error{kBadInput}, naming `what`: an id outside [0, kMaxId], or a duplicate id or
  // text. `last_wins`: a duplicate text is allowed and then found under its last id.
  void add(std::string_view text, std::int64_t id, std::string_view what, bool last_wins = false);
  void reserve(std::size_t tokens, std::size_t bytes);

  std::optional<std::int32_t> find(std::string_view text) const;
  // The text; empty for an id in a gap or outside the table.
  std::string_view text(std::int32_t id) const;
  bool contains(std::int32_t id) const;
  // The largest id plus one.
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  std::size_t num_tokens() const { return num_tokens_; }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Entry {
    std::uint32_t offset = 0;
    std::int32_t length = -1;  // -1: no token has this id
  };
  struct Slot {
    // part of the text's hash, so that most other texts are rejected without a comparison
    std::uint32_t tag = 0;
    std::int32_t id = -1;  // -1: free
  };
  void grow();
  std::size_t slot_of(std::string_view text, std::uint64_t hash) const;

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::size_t num_tokens_ = 0;
  std::size_t longest_bytes_ = 0;
};

struct BpeOptions {
  std::string unk_token;  // empty: unknown characters are dropped
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// Immutable after seal(); any thread.
class BpeModel {
 public:
  // `vocab` outlives the model. Error{kBadInput}: unk_token is not a token.
  BpeModel(const TokenTable& vocab, BpeOptions options, std::string_view what);

  // Adds the next merge in order of rank. Error{kBadInput}, naming `what` and the rank, if a token
  // is missing.
  void add_merge(std::string_view left, std::string_view right, std::string_view what);
  // A merge of `left` and `right` to `merged` with an explicit rank; merges of equal rank apply
  // from left to right.
  void add_ranked_merge(std::int32_t left, std::int32_t right, std::int32_t rank,
                        std::int32_t merged, std::string_view what);
  void reserve_merges(std::size_t count);
  std::size_t num_merges() const { return num_merges_; }
  // A piece that equals this token is not split; the pieces are cut so that the token stands alone.
  void set_whole(std::int32_t id);
  // The token may occur during merging, but a remaining one is split again (SentencePiece's
  // UNUSED).
  void set_unused(std::int32_t id);
  // Call after the last merge.
  void seal();

  // True if the byte alphabet's character of every byte is a token, so that pieces can be plain
  // bytes.
  bool has_all_bytes() const { return has_all_bytes_; }
  // True if any text can be encoded without unk: by byte fallback or, for plain bytes, by the byte
  // alphabet.
  bool covers_everything(bool as_bytes) const;
  std::int32_t byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

  // Working memory and a table of recent pieces; one thread.
  class Scratch;

  // Appends the ids of one piece. `as_bytes`: the piece is plain bytes, each byte a symbol (needs
  // has_all_bytes). Otherwise it is valid UTF-8, each character a symbol. O(n log n).
  void encode(std::string_view piece, bool as_bytes, Scratch& scratch,
              std::vector<std::int32_t>& ids) const;

 private:
  enum Role : std::uint8_t { kPlain, kWhole, kUnused };
  struct Merge {
    std::uint64_t pair = ~0ull;  // left id << 32 | right id
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  void insert(const Merge& merge);
  void characters_to_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const;
  bool bytes_to_symbols(std::string_view character, std::vector<std::int32_t>& symbols) const;
  void encode_part(std::string_view piece, bool as_bytes, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const;
  std::optional<std::int32_t> whole_token(std::string_view piece, bool as_bytes) const;
  std::size_t first_cut(std::string_view piece) const;
  Role role(std::int32_t id) const {
    return static_cast<std::size_t>(id) < roles_.size() ? roles_[static_cast<std::size_t>(id)]
                                                        : kPlain;
  }
  void set_role(std::int32_t id, Role role);
  void merge_short(std::vector<std::int32_t>& symbols, Scratch& scratch) const;
  void merge_long(std::vector<std::int32_t>& symbols, Scratch& scratch) const;
  void split_unused(std::vector<std::int32_t>& symbols, const Scratch& scratch) const;

  const TokenTable& vocab_;
  BpeOptions options_;
  std::optional<std::int32_t> unk_;
  std::array<std::int32_t, 256> byte_tokens_{};      // by byte: its character in the byte alphabet
  std::array<std::int32_t, 256> fallback_tokens_{};  // by byte: <0xXX>, or -1
  std::array<std::int32_t, 128> ascii_tokens_{};     // by character, or -1
  bool has_all_bytes_ = true;
  std::vector<Role> roles_;  // by id; empty if all tokens are ordinary
  bool has_unused_ = false;
  bool cuts_at_spaces_ = false;  // long pieces are cut before U+2581, because no merge crosses it
  // except after these characters, which some token contains before U+2581
  std::vector<char32_t> joined_;
  std::vector<Merge> merges_;  // open addressing, a power of two, at most half full
  std::size_t num_merges_ = 0;
};

class BpeModel::Scratch {
 public:
  Scratch();

  std::uint64_t heap_steps() const { return heap_steps_; }  // for tests of the running time

 private:
  friend class BpeModel;
  // A recent piece and its ids: a direct-mapped table, since most words of a text repeat.
  struct Remembered {
    std::string piece;
    std::vector<std::int32_t> ids;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    std::int32_t left, right;  // the symbols that the merge combines; if others are there by now,
                               // the entry is stale
    std::int32_t id;
  };
  struct Node {
    std::int32_t id;  // -1: merged into its left neighbour
    std::int32_t previous;
    std::int32_t next;
  };
  std::vector<Remembered> memory_;
  std::vector<std::int32_t> symbols_;
  std::vector<const Merge*> found_;  // by symbol: its merge with the next symbol
  std::vector<Candidate> heap_;
  std::vector<Node> nodes_;
  // by id: halves of unused tokens
  std::unordered_map<std::int32_t, std::pair<std::int32_t, std::int32_t>> halves_;
  std::size_t seen_ = 0;
  std::uint64_t heap_steps_ = 0;
};

}  // namespace sluice
