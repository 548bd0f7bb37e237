#include "runtime/remote_ranks.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "batch/result_message.h"
#include "batch/step_message.h"

namespace sluice {
namespace {

// A rank looks for the next step for so long before it sleeps: the first rank plans meanwhile.
constexpr int kSpinUs = 200;

bool wants_masks(const Step& step) {
  return std::ranges::any_of(step.dp, [](const Batch& batch) {
    return std::ranges::any_of(batch.logit_rows, [](const LogitRow& row) { return row.has_mask; });
  });
}

std::uint64_t hash_result(const BatchResult& result) {
  std::uint64_t hash = 0;
  for (const auto* list :
       {&result.token_offsets, &result.tokens, &result.drafts, &result.draft_parents})
    hash = hash_span(std::span<const std::int32_t>(*list), hash);
  return hash_span(std::span<const std::uint8_t>(result.failed), hash);
}

}  // namespace

RemoteRanks::RemoteRanks(std::unique_ptr<RankProcesses> processes, int num_samplers, int dp_size)
    : processes_(std::move(processes)),
      num_samplers_(num_samplers > 0 ? num_samplers : processes_->size()),
      dp_size_(dp_size),
      num_compared_(static_cast<std::size_t>(num_samplers_) - 1) {}

void RemoteRanks::send(int rank, RankMessage kind, std::span<const std::byte> bytes) {
  region().check();
  if (is_elsewhere(rank))
    return bridge_->send_message(rank, static_cast<std::uint32_t>(kind), bytes);
  if (is_lost(rank)) return;
  if (processes_->socket(rank).send(static_cast<std::uint32_t>(kind), bytes)) return;
  if (processes_->is_lost_soon(rank)) return;
  const RankFailure why = processes_->failure_soon();
  throw Error(why.kind, why.text);
}

// The last rank first: it may be the first stage, for which the others wait.
void RemoteRanks::send_to(int end, RankMessage kind) {
  for (int rank = end - 1; rank >= 1; --rank) send(rank, kind, message_.bytes());
}

void RemoteRanks::launch(const Step& step) {
  message_.clear();
  write_step(step, message_);
  send_to(processes_->size(), RankMessage::kStep);
}

void RemoteRanks::sample(std::uint64_t step_id, const std::vector<SampleInputs>& inputs) {
  if (inputs.empty()) return;
  message_.clear();
  message_.value(step_id);
  write_sample_inputs(inputs, message_);
  send_to(num_samplers_, RankMessage::kSample);
}

void RemoteRanks::ask_results() {
  for (int group = 1; group < dp_size_; ++group)
    send(group * (num_samplers_ / dp_size_), RankMessage::kCollect, {});
}

std::optional<Message> RemoteRanks::receive(int rank) {
  Message message;
  if (is_elsewhere(rank)) {
    bridge_->receive_message(rank, message);
    return message;
  }
  if (processes_->socket(rank).receive(message, kSpinUs)) return message;
  if (processes_->is_lost_soon(rank)) return std::nullopt;
  const RankFailure why = processes_->failure_soon();
  throw Error(why.kind, why.text);
}

void RemoteRanks::drop(std::uint64_t lost, const std::vector<std::uint8_t>& owners) {
  message_.clear();
  message_.value(lost);
  message_.list(owners);
  send_to(processes_->size(), RankMessage::kDrop);
  for (int rank = 1; rank < processes_->size(); ++rank) {
    if (is_lost(rank)) continue;
    const std::optional<Message> answer = receive(rank);
    check(!answer || answer->kind == static_cast<std::uint32_t>(RankMessage::kDrop),
          "rank {} answered with a message of kind {}", rank, answer ? answer->kind : 0);
  }
}

std::optional<BatchResult> RemoteRanks::result_of(int group, std::uint64_t step_id) {
  const std::optional<Message> got = receive(group * (num_samplers_ / dp_size_));
  if (!got) return std::nullopt;
  const Message& message = *got;
  ByteReader in(message.bytes);
  const auto id = in.value<std::uint64_t>();
  BatchResult result = read_result(in);
  in.expect_end();
  check(message.kind == static_cast<std::uint32_t>(RankMessage::kResult) && id == step_id,
        "group {} sent what it chose in step {} instead of step {}", group, id, step_id);
  return result;
}

void RemoteRanks::collected(const std::vector<BatchResult>& results) {
  region().check();  // else the result may be made of what a dead rank left
  std::vector<std::uint64_t>& hashes = chosen_.emplace_back();
  for (const BatchResult& result : results) hashes.push_back(hash_result(result));
  ++num_chosen_;
  check(chosen_.size() < SharedRegion::kKeptResults, "a rank is {} steps behind", chosen_.size());
  const auto first = num_chosen_ - static_cast<std::uint32_t>(chosen_.size());
  std::uint32_t slowest = num_chosen_;
  for (std::size_t i = 0; i < num_compared_.size(); ++i) {
    const int rank = static_cast<int>(i) + 1;
    if (is_lost(rank)) continue;
    std::uint32_t& next = num_compared_[i];
    for (; next < num_chosen_; ++next) {
      const std::optional<std::uint64_t> theirs = region().result(rank, next);
      if (!theirs) break;
      const int group = group_of(rank);
      if (*theirs != chosen_[next - first][static_cast<std::size_t>(group)])
        give_up(fmt::format("ranks {} and {} chose different tokens",
                            group * (num_samplers_ / dp_size_), rank));
    }
    slowest = std::min(slowest, next);
  }
  chosen_.erase(chosen_.begin(), chosen_.begin() + (slowest - first));
}

void RemoteRanks::give_up(const std::string& why) {
  region().fail(ErrorKind::kFatal, why);
  const std::optional<RankFailure> first = region().failure();
  throw Error(first ? first->kind : ErrorKind::kFatal, first ? first->text : why);
}

std::string RemoteRanks::failure() const {
  const std::optional<RankFailure> why = processes_->region().failure();
  return why ? why->text : "";
}

void run_steps(MessageSocket& socket, SharedRegion& region, const RankDuty& duty,
               ModelRunner& runner) {
  struct Flight {
    std::unique_ptr<Step> step;  // Pending points into it
    Pending pending;
  };
  std::deque<Flight> flights;
  const auto group = static_cast<std::size_t>(duty.group);
  ByteWriter answer;
  std::uint32_t num_results = 0;
  const auto collect = [&] {
    const BatchResult result = runner.collect(std::move(flights.front().pending));
    region.put_result(duty.rank, num_results++, hash_result(result));
    if (duty.sends_results) {
      answer.clear();
      answer.value(flights.front().step->id);
      write_result(result, answer);
      // Where the engine's process has closed the socket, the next message is its end.
      (void)socket.send(static_cast<std::uint32_t>(RankMessage::kResult), answer.bytes());
    }
    flights.pop_front();
  };
  const auto sample = [&](const SampleInputs& inputs) {
    runner.sample(flights.back().pending, inputs);
    while (!duty.sends_results && static_cast<int>(flights.size()) >= duty.depth) collect();
  };
  Message message;
  runner.bind_caller();
  while (socket.receive(message, kSpinUs)) {
    ByteReader in(message.bytes);
    if (message.kind == static_cast<std::uint32_t>(RankMessage::kStep)) {
      auto step = std::make_unique<Step>(read_step(in));
      in.expect_end();
      check(group < step->dp.size() && hash_step(*step) == step->hash,
            "step {} reached the rank with other contents than it was planned with", step->id);
      Pending pending;
      try {
        pending = runner.launch(step->dp[group], step->dp, step->expert_moves);
      } catch (const RanksLost&) {
        continue;  // the other ranks are told to, and then send the step again
      }
      if (!runner.is_last_stage()) continue;
      const bool waits = wants_masks(*step);
      flights.push_back({.step = std::move(step), .pending = std::move(pending)});
      if (!waits) sample({});
    } else if (message.kind == static_cast<std::uint32_t>(RankMessage::kSample)) {
      const auto id = in.value<std::uint64_t>();
      const std::vector<SampleInputs> inputs = read_sample_inputs(in);
      in.expect_end();
      check(!flights.empty() && flights.back().step->id == id && group < inputs.size(),
            "step {} is sampled, which was not launched last", id);
      sample(inputs[group]);
    } else if (message.kind == static_cast<std::uint32_t>(RankMessage::kCollect)) {
      check(!flights.empty(), "a result was asked for, and no step is in flight");
      collect();
    } else if (message.kind == static_cast<std::uint32_t>(RankMessage::kDrop) && duty.drop) {
      check(flights.empty(), "ranks are dropped in the middle of a step");
      const auto lost = in.value<std::uint64_t>();
      const auto owners = in.list<std::uint8_t>();
      in.expect_end();
      duty.drop(lost, owners);
      (void)socket.send(static_cast<std::uint32_t>(RankMessage::kDrop), {});
    } else {
      fail(ErrorKind::kFatal, "a rank was sent a message of kind {}", message.kind);
    }
  }
}

}  // namespace sluice
