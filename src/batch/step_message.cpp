#include "batch/step_message.h"

namespace sluice {
namespace {

void write_flag(bool flag, ByteWriter& out) {
  out.value(static_cast<std::uint8_t>(flag ? 1 : 0));
}

// The smallest entry of a list of structs has this many bytes, which bounds its count.
constexpr std::size_t kMinEntryBytes = 8;

void write_params(const SamplingParams& p, ByteWriter& out) {
  for (const float value : {p.temperature, p.top_p, p.min_p, p.frequency_penalty,
                            p.presence_penalty, p.repetition_penalty})
    out.value(value);
  out.value(std::int32_t{p.top_k});
  out.value(std::int32_t{p.min_new_tokens});
  out.value(std::int32_t{p.num_top_logprobs});
  out.value(p.seed);
  out.list(p.stop_token_ids);
  out.value(std::uint64_t{p.logit_bias.size()});
  for (const auto& [token, bias] : p.logit_bias) {
    out.value(token);
    out.value(bias);
  }
}

SamplingParams read_params(ByteReader& in) {
  SamplingParams p;
  for (float* value : {&p.temperature, &p.top_p, &p.min_p, &p.frequency_penalty,
                       &p.presence_penalty, &p.repetition_penalty})
    *value = in.value<float>();
  p.top_k = in.value<std::int32_t>();
  p.min_new_tokens = in.value<std::int32_t>();
  p.num_top_logprobs = in.value<std::int32_t>();
  p.seed = in.value<std::uint64_t>();
  p.stop_token_ids = in.list<std::int32_t>();
  p.logit_bias.resize(in.count(kMinEntryBytes));
  for (auto& [token, bias] : p.logit_bias) {
    token = in.value<std::int32_t>();
    bias = in.value<float>();
  }
  return p;
}

void write_item(const BatchItem& item, ByteWriter& out) {
  out.value(item.sequence);
  for (const std::int32_t value : {item.slot, item.first, item.count, item.next_token})
    out.value(value);
  write_flag(item.decode, out);
  write_flag(item.is_ahead, out);
}

BatchItem read_item(ByteReader& in) {
  BatchItem item;
  item.sequence = in.value<std::uint64_t>();
  for (std::int32_t* value : {&item.slot, &item.first, &item.count, &item.next_token})
    *value = in.value<std::int32_t>();
  item.decode = in.flag();
  item.is_ahead = in.flag();
  return item;
}

void write_slot_init(const SlotInit& init, ByteWriter& out) {
  out.value(init.slot);
  out.value(init.num_output);
  write_params(init.params, out);
  out.list(init.prompt);
  out.list(init.output);
}

SlotInit read_slot_init(ByteReader& in) {
  SlotInit init;
  init.slot = in.value<std::int32_t>();
  init.num_output = in.value<std::int32_t>();
  init.params = read_params(in);
  init.prompt = in.list<std::int32_t>();
  init.output = in.list<std::int32_t>();
  return init;
}

void write_logit_row(const LogitRow& row, ByteWriter& out) {
  for (const std::int32_t value :
       {row.item, row.row, row.position, row.target, row.num_top_logprobs, row.behind})
    out.value(value);
  for (const bool flag : {row.sample, row.want_hash, row.has_mask}) write_flag(flag, out);
}

LogitRow read_logit_row(ByteReader& in) {
  LogitRow row;
  for (std::int32_t* value :
       {&row.item, &row.row, &row.position, &row.target, &row.num_top_logprobs, &row.behind})
    *value = in.value<std::int32_t>();
  for (bool* flag : {&row.sample, &row.want_hash, &row.has_mask}) *flag = in.flag();
  return row;
}

template <class T>
void write_all(const std::vector<T>& entries, ByteWriter& out,
               void (*write)(const T&, ByteWriter&)) {
  out.value(std::uint64_t{entries.size()});
  for (const T& entry : entries) write(entry, out);
}

template <class T>
std::vector<T> read_all(ByteReader& in, T (*read)(ByteReader&)) {
  std::vector<T> entries(in.count(kMinEntryBytes));
  for (T& entry : entries) entry = read(in);
  return entries;
}

void write_page_rows(const PageRows& rows, ByteWriter& out) {
  out.list(rows.offsets);
  out.list(rows.pages);
}

PageRows read_page_rows(ByteReader& in) {
  PageRows rows;
  rows.offsets = in.list<std::int32_t>();
  rows.pages = in.list<std::int32_t>();
  return rows;
}

void write_branches(const ItemBranches& one, ByteWriter& out) {
  for (const std::int32_t value : {one.item, one.first_page, one.num_pages}) out.value(value);
  out.list(one.parents);
  out.list(one.pages);
}

ItemBranches read_branches(ByteReader& in) {
  ItemBranches one;
  for (std::int32_t* value : {&one.item, &one.first_page, &one.num_pages})
    *value = in.value<std::int32_t>();
  one.parents = in.list<std::int32_t>();
  one.pages = in.list<std::int32_t>();
  return one;
}

void write_batch(const Batch& batch, ByteWriter& out) {
  out.value(static_cast<std::uint8_t>(batch.mode));
  write_flag(batch.deterministic, out);
  write_flag(batch.is_round, out);
  out.value(batch.max_drafts);
  write_all(batch.items, out, write_item);
  out.list(batch.token_ids);
  write_all(batch.groups, out, write_page_rows);
  out.list(batch.state_slots);
  out.list(batch.copies);
  write_all(batch.slot_inits, out, write_slot_init);
  write_all(batch.logit_rows, out, write_logit_row);
  out.list(batch.pooled_rows);
  write_all(batch.branches, out, write_branches);
}

Batch read_batch(ByteReader& in) {
  Batch batch;
  const auto mode = in.value<std::uint8_t>();
  if (mode > static_cast<std::uint8_t>(ForwardMode::kIdle))
    fail(ErrorKind::kFatal, "a message has a step of mode {}", mode);
  batch.mode = static_cast<ForwardMode>(mode);
  batch.deterministic = in.flag();
  batch.is_round = in.flag();
  batch.max_drafts = in.value<std::int32_t>();
  batch.items = read_all(in, read_item);
  batch.token_ids = in.list<std::int32_t>();
  batch.groups = read_all(in, read_page_rows);
  batch.state_slots = in.list<std::int32_t>();
  batch.copies = in.list<PageCopy>();
  batch.slot_inits = read_all(in, read_slot_init);
  batch.logit_rows = read_all(in, read_logit_row);
  batch.pooled_rows = in.list<PooledRows>();
  batch.branches = read_all(in, read_branches);
  return batch;
}

void write_mask(const TokenMask& mask, ByteWriter& out) {
  out.value(mask.logit_row);
  write_flag(mask.is_skipped, out);
  out.list(mask.bits);
}

TokenMask read_mask(ByteReader& in) {
  TokenMask mask;
  mask.logit_row = in.value<std::int32_t>();
  mask.is_skipped = in.flag();
  mask.bits = in.list<std::uint32_t>();
  return mask;
}

void write_inputs(const SampleInputs& inputs, ByteWriter& out) {
  write_all(inputs.masks, out, write_mask);
}

SampleInputs read_inputs(ByteReader& in) {
  return {.masks = read_all(in, read_mask)};
}

}  // namespace

void write_step(const Step& step, ByteWriter& out) {
  out.value(step.id);
  out.value(step.hash);
  out.list(step.global_tokens);
  out.list(step.expert_moves);
  write_all(step.dp, out, write_batch);
}

Step read_step(ByteReader& in) {
  Step step;
  step.id = in.value<std::uint64_t>();
  step.hash = in.value<std::uint64_t>();
  step.global_tokens = in.list<std::int32_t>();
  step.expert_moves = in.list<ExpertMove>();
  step.dp = read_all(in, read_batch);
  return step;
}

void write_sample_inputs(const std::vector<SampleInputs>& inputs, ByteWriter& out) {
  write_all(inputs, out, write_inputs);
}

std::vector<SampleInputs> read_sample_inputs(ByteReader& in) {
  return read_all(in, read_inputs);
}

}  // namespace sluice
