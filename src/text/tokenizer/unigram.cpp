#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr double kUnkPenalty = 10;  // below the minimum score
constexpr double kUserDefinedMalus = 0.1;
constexpr std::int32_t kUnknown = -1;

}  // namespace

UnigramModel::UnigramModel(const TokenTable& vocab, const std::vector<UnigramPiece>& pieces,
                           UnigramOptions options, std::string_view what)
    : vocab_(vocab), options_(options) {
  require(!pieces.empty(), "{}: model.vocab is empty", what);
  scores_.assign(static_cast<std::size_t>(vocab.size()), 0);
  user_defined_.assign(static_cast<std::size_t>(vocab.size()), 0);
  std::vector<TokenTrie::Key> keys;
  keys.reserve(pieces.size());
  min_score_ = std::numeric_limits<double>::infinity();
  greatest_score_ = -min_score_;
  for (const UnigramPiece& piece : pieces) {
    if (!std::isfinite(piece.score))
      fail(ErrorKind::kBadInput, "{}: the score of token {} is not finite", what, piece.id);
    const auto index = static_cast<std::size_t>(piece.id);
    scores_[index] = piece.score;
    user_defined_[index] = piece.user_defined;
    if (piece.normal) {
      min_score_ = std::min(min_score_, piece.score);
      greatest_score_ = std::max(greatest_score_, piece.score);
    }
    if (piece.usable) keys.emplace_back(vocab.text(piece.id), piece.id);
  }
  if (!std::isfinite(min_score_)) min_score_ = greatest_score_ = 0;
  trie_ = TokenTrie(std::move(keys));
  if (options_.unk_id)
    require(vocab.contains(*options_.unk_id), "{}: model.unk_id is {}, which is no token", what,
            *options_.unk_id);
  for (int byte = 0; byte < 256; ++byte)
    byte_tokens_[static_cast<std::size_t>(byte)] =
        vocab.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

template <class Real>
void UnigramModel::search(std::string_view piece, Scratch& scratch) const {
  using Node = Scratch::Node;
  scratch.nodes.assign(piece.size() + 1, Node{0, kUnknown, -1});
  Node* nodes = scratch.nodes.data();
  const Real unk_score = static_cast<Real>(min_score_) - static_cast<Real>(kUnkPenalty);
  for (std::size_t at = 0; at < piece.size();) {
    const Real here = static_cast<Real>(nodes[at].score);
    const auto size = static_cast<std::size_t>(utf8_length(static_cast<unsigned char>(piece[at])));
    // Resolves near-ties as SentencePiece does, also in single precision: the sum is compared
    // before it is rounded for storage. SentencePiece adds a token's score as a double, and an
    // unknown character's score as a float.
    const auto offer = [&](std::size_t length, auto score, std::int32_t id) {
      Node& target = nodes[at + length];
      const auto sum = here + score;
      if (target.begin < 0 || sum > static_cast<Real>(target.score))
        target = {static_cast<double>(static_cast<Real>(sum)), id, static_cast<std::int32_t>(at)};
    };
    bool has_single = false;
    trie_.for_each_prefix(piece.substr(at), [&](std::size_t length, std::int32_t id) {
      ++scratch.steps;
      const double score =
          user_defined_[static_cast<std::size_t>(id)]
              ? static_cast<Real>(length) * static_cast<Real>(greatest_score_) - kUserDefinedMalus
              : scores_[static_cast<std::size_t>(id)];
      offer(length, score, id);
      has_single = has_single || length == size;
    });
    if (!has_single) offer(size, unk_score, options_.unk_id.value_or(kUnknown));
    at += size;
  }
}

void UnigramModel::write_unknown(std::string_view run, std::vector<std::int32_t>& ids) const {
  // For example the text of the unk token itself, or a run that equals another piece of the file.
  if (const auto id = options_.single_precision ? std::nullopt : vocab_.find(run)) {
    ids.push_back(*id);
    return;
  }
  const auto known = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)] >= 0; };
  if (options_.byte_fallback && std::all_of(run.begin(), run.end(), known)) {
    for (const char c : run) ids.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  } else if (options_.unk_id) {
    ids.push_back(*options_.unk_id);
  }
}

void UnigramModel::encode(std::string_view piece, Scratch& scratch,
                          std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  require(piece.size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
          "a piece of {} bytes is too long to tokenize", piece.size());
  if (options_.single_precision)
    search<float>(piece, scratch);
  else
    search<double>(piece, scratch);
  auto& path = scratch.path;  // tokens by their first byte and id, the last token first
  path.clear();
  for (auto at = static_cast<std::int32_t>(piece.size()); at > 0;
       at = scratch.nodes[static_cast<std::size_t>(at)].begin)
    path.emplace_back(scratch.nodes[static_cast<std::size_t>(at)].begin,
                      scratch.nodes[static_cast<std::size_t>(at)].id);
  const std::int32_t unknown = options_.unk_id.value_or(kUnknown);
  for (std::size_t i = path.size(); i-- > 0;) {
    if (path[i].second != unknown) {
      ids.push_back(path[i].second);
      continue;
    }
    const auto begin = static_cast<std::size_t>(path[i].first);
    while (i > 0 && path[i - 1].second == unknown) --i;
    const std::size_t end = i > 0 ? static_cast<std::size_t>(path[i - 1].first) : piece.size();
    write_unknown(piece.substr(begin, end - begin), ids);
  }
}

}  // namespace sluice
