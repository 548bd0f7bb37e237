#include "batch/result_message.h"

namespace sluice {
namespace {

// The smallest entry of each list has this many bytes, which bounds its count.
constexpr std::size_t kRowBytes = 20, kTokenBytes = 8;

void write_rows(const std::vector<RowLogprobs>& rows, ByteWriter& out) {
  out.value(std::uint64_t{rows.size()});
  for (const RowLogprobs& row : rows) {
    out.value(row.logprob);
    out.value(row.logits_hash);
    out.value(std::uint64_t{row.top.size()});
    for (const TokenLogprob& one : row.top) {
      out.value(one.token);
      out.value(one.logprob);
    }
  }
}

std::vector<RowLogprobs> read_rows(ByteReader& in) {
  std::vector<RowLogprobs> rows(in.count(kRowBytes));
  for (RowLogprobs& row : rows) {
    row.logprob = in.value<float>();
    row.logits_hash = in.value<std::uint64_t>();
    row.top.resize(in.count(kTokenBytes));
    for (TokenLogprob& one : row.top) {
      one.token = in.value<std::int32_t>();
      one.logprob = in.value<float>();
    }
  }
  return rows;
}

}  // namespace

void write_result(const BatchResult& result, ByteWriter& out) {
  out.list(result.token_offsets);
  out.list(result.tokens);
  write_rows(result.token_logprobs, out);
  out.list(result.prompt_offsets);
  write_rows(result.prompt_logprobs, out);
  out.list(result.failed);
  out.list(result.pooled_states);
  out.list(result.draft_offsets);
  out.list(result.drafts);
  out.list(result.draft_parents);
}

BatchResult read_result(ByteReader& in) {
  BatchResult result;
  result.token_offsets = in.list<std::int32_t>();
  result.tokens = in.list<std::int32_t>();
  result.token_logprobs = read_rows(in);
  result.prompt_offsets = in.list<std::int32_t>();
  result.prompt_logprobs = read_rows(in);
  result.failed = in.list<std::uint8_t>();
  result.pooled_states = in.list<float>();
  result.draft_offsets = in.list<std::int32_t>();
  result.drafts = in.list<std::int32_t>();
  result.draft_parents = in.list<std::int32_t>();
  return result;
}

}  // namespace sluice
