// `sluice verify --grammar`: schemas, regular expressions and EBNF against texts, token by token.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <optional>
#include <span>

#include "base/json.h"
#include "cli/verbs.h"
#include "cli/verify/grammar_cases.h"
#include "server/core/grammar_drafts.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

using grammar::CompiledGrammar;
using grammar::Constraint;
using grammar::GrammarSource;
using grammar::Vocabulary;
// Of this thread's processor time: other work on the machine does not count.
std::int64_t now_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
// What two readings of the clock cost, which is part of each time: the median of many.
std::int64_t clock_cost_ns() {
  std::vector<std::int64_t> costs(1001);
  for (std::int64_t& cost : costs) {
    const std::int64_t begin = now_ns();
    cost = now_ns() - begin;
  }
  std::ranges::nth_element(costs, costs.begin() + 500);
  return costs[500];
}

// Tokens that are taken back at once, when that is timed.
constexpr std::size_t kRollback = 8;

// How a text went.
struct Walk {
  bool is_accepted = false;
  std::size_t at = 0, num_tokens = 0;  // the first token that was refused, or num_tokens
  bool has_disagreed = false;          // mask and matcher
  bool has_failed = false;             // a budget ran out
};

// Tokens of valid texts, and what drafts of forced tokens did for them.
struct DraftTally {
  std::size_t tokens = 0, drafted = 0, accepted = 0;
};
constexpr int kDrafts = 15;

struct Tally {
  std::size_t cases = 0, compiled = 0, right = 0, over = 0, strict = 0, refused = 0, valid = 0,
              accepted = 0, invalid = 0, rejected = 0, disagreed = 0, failed = 0, reordered = 0,
              reordered_accepted = 0, open = 0, open_accepted = 0, untokenized = 0, captures = 0,
              captures_right = 0, captures_refused = 0;
  std::vector<std::int64_t> mask_ns, compile_us, first_mask_us, rollback_ns, fork_ns, draft_ns,
      capture_ns;
  DraftTally drafts_as_written, drafts_compact;
  std::uint64_t max_bytes = 0;
  std::vector<std::uint64_t> bytes, bytes_used;  // when compiled, and behind all texts
};

class Verifier {
 public:
  explicit Verifier(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        vocabulary_(std::make_shared<const Vocabulary>(tokenizer, tokenizer.size() + 1)),
        stop_(tokenizer.size()),
        bits_(vocabulary_->num_words()) {}

  std::int64_t clock_ns() const { return clock_ns_; }

  Json run(const GrammarCase& one, Tally& tally) {
    Json json;
    json["id"] = one.id;
    ++tally.cases;
    const std::int64_t begin = now_ns();
    const Result<std::shared_ptr<CompiledGrammar>> compiled =
        grammar::compile(one.source, vocabulary_);
    const std::int64_t compile_us = ns_since(begin) / 1000;
    if (!compiled) {
      ++tally.refused;
      json["refused"] = compiled.fault().message;
      json["code"] = compiled.fault().code;
      json["pointer"] = compiled.fault().param;
      json["compile_us"] = compile_us;
      return json;
    }
    ++tally.compiled;
    tally.compile_us.push_back(compile_us);
    json["compile_us"] = compile_us;
    json["bytes"] = (*compiled)->bytes();
    tally.bytes.push_back((*compiled)->bytes());
    mask_ns_.clear();
    bool is_strict = false, is_over = false;
    json["valid"] = walk_all(*compiled, one, one.valid, true, tally, is_strict);
    json["invalid"] = walk_all(*compiled, one, one.invalid, false, tally, is_over);
    count(*compiled, one.reordered, tally.reordered, tally.reordered_accepted);
    count(*compiled, one.open, tally.open, tally.open_accepted);
    if (!one.captures.empty()) read_captures(one, tally, json);
    json["mask_ns"] = mask_ns_;
    json["bytes_used"] = (*compiled)->bytes();
    tally.bytes_used.push_back((*compiled)->bytes());
    if (!mask_ns_.empty()) tally.first_mask_us.push_back(compile_us + mask_ns_.front() / 1000);
    tally.mask_ns.insert(tally.mask_ns.end(), mask_ns_.begin(), mask_ns_.end());
    tally.strict += is_strict ? 1 : 0;
    tally.over += is_over ? 1 : 0;
    tally.right += !is_strict && !is_over ? 1 : 0;
    return json;
  }

 private:
  std::int64_t ns_since(std::int64_t begin) const {
    return std::max<std::int64_t>(0, now_ns() - begin - clock_ns_);
  }

  // The forms in which a text is walked; schemas have several.
  static std::vector<std::string> forms(const GrammarCase& one, const std::string& text) {
    if (one.source.kind != GrammarSource::kJsonSchema) return {text};
    return {text, compact_json(text), pretty_json(text), escaped_json(text)};
  }

  Json walk_all(const std::shared_ptr<CompiledGrammar>& compiled, const GrammarCase& one,
                const std::vector<std::string>& texts, bool is_valid, Tally& tally,
                bool& is_wrong) {
    Json json = Json::array();
    for (const std::string& text : texts) {
      bool is_first = true;
      DraftTally* drafts[] = {&tally.drafts_as_written, &tally.drafts_compact, nullptr, nullptr};
      std::size_t number = 0;
      for (const std::string& form : forms(one, text)) {
        DraftTally* const of_form = drafts[number++];
        const std::optional<std::vector<std::int32_t>> tokens = tokenize(form);
        if (!tokens) {  // a model with this tokenizer can not say it
          ++tally.untokenized;
          continue;
        }
        const Walk walk = walk_tokens(compiled, *tokens, &tally);
        tally.disagreed += walk.has_disagreed ? 1 : 0;
        tally.failed += walk.has_failed ? 1 : 0;
        ++(is_valid ? tally.valid : tally.invalid);
        if (walk.is_accepted == is_valid) ++(is_valid ? tally.accepted : tally.rejected);
        if (walk.is_accepted && is_valid && of_form != nullptr)
          draft(compiled, *tokens, *of_form, tally.draft_ns);
        if (walk.is_accepted != is_valid) is_wrong = true;
        if (walk.is_accepted != is_valid || is_first)
          json.push_back({walk.is_accepted ? 1 : 0, walk.at, walk.num_tokens});
        is_first = false;
      }
    }
    return json;
  }

  void count(const std::shared_ptr<CompiledGrammar>& compiled,
             const std::vector<std::string>& texts, std::size_t& all, std::size_t& accepted) {
    const std::vector<std::int64_t> kept = mask_ns_;
    for (const std::string& text : texts) {
      const std::optional<std::vector<std::int32_t>> tokens = tokenize(text);
      if (!tokens) continue;
      ++all;
      accepted += walk_tokens(compiled, *tokens, nullptr).is_accepted ? 1 : 0;
    }
    mask_ns_ = kept;
  }

  // Its tokens, whose bytes are the text's; none where the vocabulary can not spell it.
  std::optional<std::vector<std::int32_t>> tokenize(std::string_view text) {
    std::vector<std::int32_t> tokens =
        tokenizer_.encode(text, {.add_special_tokens = false, .parse_special = false});
    std::string bytes;
    for (const std::int32_t token : tokens) bytes += vocabulary_->bytes(token);
    if (bytes == text) return tokens;
    // a tokenizer that changes the text: the longest token at each place
    tokens.clear();
    const Vocabulary::Trie& trie = vocabulary_->trie();
    while (!text.empty()) {
      std::int32_t longest = -1;
      std::size_t depth = 0;
      for (std::uint32_t node = 0, end = static_cast<std::uint32_t>(trie.size());
           node < end && depth < text.size();) {
        if (trie[node].byte != static_cast<unsigned char>(text[depth])) {
          node = trie[node].end;
          continue;
        }
        ++depth;
        if (trie[node].token >= 0) longest = trie[node].token;
        end = trie[node].end;
        ++node;
      }
      if (longest < 0) return std::nullopt;
      tokens.push_back(longest);
      text.remove_prefix(vocabulary_->bytes(longest).size());
    }
    return tokens;
  }

  Walk walk_tokens(const std::shared_ptr<CompiledGrammar>& compiled,
                   std::span<const std::int32_t> tokens, Tally* tally) {
    Walk walk;
    walk.num_tokens = tokens.size();
    Constraint constraint(compiled, {stop_});
    for (walk.at = 0; walk.at <= tokens.size(); ++walk.at) {
      const std::int32_t token = walk.at < tokens.size() ? tokens[walk.at] : stop_;
      const std::int64_t begin = now_ns();
      constraint.fill(bits_);
      mask_ns_.push_back(ns_since(begin));
      const bool is_allowed = grammar::has_bit(bits_, token);
      const bool is_taken = constraint.accept(token);
      walk.has_disagreed = walk.has_disagreed || is_allowed != is_taken;
      walk.has_failed = constraint.has_failed();
      if (!is_allowed || !is_taken) return walk;
    }
    walk.at = tokens.size();
    walk.is_accepted = true;
    if (tally != nullptr && tokens.size() >= kRollback) time_going_back(constraint, *tally);
    return walk;
  }

  // Captures of the valid texts; `json` gets those that are not as the case says.
  void read_captures(const GrammarCase& one, Tally& tally, Json& json) const {
    const auto reader = grammar::compile_captures(one.source, *vocabulary_);
    if (!reader) {
      ++tally.captures_refused;
      json["captures_refused"] = reader.fault().message;
      return;
    }
    for (std::size_t i = 0; i < one.valid.size(); ++i) {
      const std::string& text = one.valid[i];
      const std::int64_t begin = now_ns();
      const auto found = (*reader)->read(text, true);
      tally.capture_ns.push_back(ns_since(begin));
      Json list;
      if (found) list = Json::array();
      for (std::size_t k = 0; found && k < found->captures.size(); ++k) {
        const grammar::Capture& capture = found->captures[k];
        list.push_back(Json::array(
            {(*reader)->name(capture), text.substr(capture.begin, capture.end - capture.begin)}));
      }
      const bool is_right = dump_json(list) == one.captures[i];
      ++tally.captures;
      tally.captures_right += is_right ? 1 : 0;
      if (!is_right) json["captures"].push_back({{"text", text}, {"found", std::move(list)}});
    }
  }

  // As a server walks the text that takes up to kDrafts drafts in a step.
  void draft(const std::shared_ptr<CompiledGrammar>& compiled, std::span<const std::int32_t> tokens,
             DraftTally& tally, std::vector<std::int64_t>& draft_ns) const {
    Constraint constraint(compiled, {stop_});
    tally.tokens += tokens.size();
    std::vector<std::int32_t> drafts;
    for (std::size_t at = 0; at < tokens.size();) {
      drafts.clear();
      const std::int64_t begin = now_ns();
      append_drafts(tokenizer_, *vocabulary_, constraint.likely(kDraftBytes * kDrafts), kDrafts,
                    drafts);
      draft_ns.push_back(ns_since(begin));
      // The last token comes from the row before it.
      drafts.resize(std::min(drafts.size(), tokens.size() - at - 1));
      const std::span<const std::int32_t> rest = tokens.subspan(at);
      const auto right =
          static_cast<std::size_t>(std::ranges::mismatch(drafts, rest).in1 - drafts.begin());
      tally.drafted += drafts.size();
      tally.accepted += right;
      for (const std::int32_t token : rest.first(right + 1)) constraint.accept(token);
      at += right + 1;
    }
  }

  void time_going_back(Constraint& constraint, Tally& tally) const {
    std::int64_t begin = now_ns();
    const Constraint fork = constraint;
    tally.fork_ns.push_back(ns_since(begin));
    begin = now_ns();
    constraint.rollback(kRollback);
    tally.rollback_ns.push_back(ns_since(begin));
  }

  const Tokenizer& tokenizer_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::int32_t stop_;  // an id of its own, behind the tokenizer's
  const std::int64_t clock_ns_ = clock_cost_ns();
  std::vector<std::uint32_t> bits_;
  std::vector<std::int64_t> mask_ns_;
};

template <class T>
Json quantiles(std::vector<T> values) {
  Json json;
  if (values.empty()) return json;
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value);
  json["p50"] = at(0.5);
  json["p95"] = at(0.95);
  json["p99"] = at(0.99);
  json["p99.9"] = at(0.999);
  json["max"] = values.back();
  json["mean"] = sum / static_cast<double>(values.size());
  return json;
}

Json json_of(const DraftTally& tally) {
  return {{"tokens", tally.tokens}, {"drafted", tally.drafted}, {"accepted", tally.accepted}};
}

}  // namespace

int verify_grammar(const Arguments& arguments) {
  if (!arguments.has("tokenizer"))
    throw UsageError("--tokenizer is missing", "give the directory of a tokenizer");
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(arguments.get("tokenizer"));
  Verifier verifier(*tokenizer);
  std::ofstream out;
  if (arguments.has("json")) {
    out.open(arguments.get("json"));
    require(out.good(), "--json {}: cannot be written", arguments.get("json"));
  }
  const auto print = [&](const Json& json) {
    const std::string line = dump_json(json);
    if (out.is_open())
      out << line << "\n";
    else
      fmt::print("{}\n", line);
  };
  Tally tally;
  for (GrammarCase& one : read_grammar_cases(arguments.get("grammar"))) {
    one.source.any_order = arguments.has("any-order");
    print(verifier.run(one, tally));
  }
  Json summary = {{"cases", tally.cases},
                  {"compiled", tally.compiled},
                  {"fully_right", tally.right},
                  {"over_accepting", tally.over},
                  {"too_strict", tally.strict},
                  {"refused", tally.refused},
                  {"valid", {tally.accepted, tally.valid}},
                  {"invalid", {tally.rejected, tally.invalid}},
                  {"reordered", {tally.reordered_accepted, tally.reordered}},
                  {"open", {tally.open_accepted, tally.open}},
                  {"mask_differs_from_matcher", tally.disagreed},
                  {"out_of_budget", tally.failed},
                  {"untokenized", tally.untokenized},
                  {"clock_ns", verifier.clock_ns()},
                  {"mask_ns", quantiles(tally.mask_ns)},
                  {"drafts_as_written", json_of(tally.drafts_as_written)},
                  {"drafts_compact", json_of(tally.drafts_compact)},
                  {"draft_ns", quantiles(tally.draft_ns)},
                  {"compile_us", quantiles(tally.compile_us)},
                  {"first_mask_us", quantiles(tally.first_mask_us)},
                  {"rollback_8_ns", quantiles(tally.rollback_ns)},
                  {"fork_ns", quantiles(tally.fork_ns)},
                  {"bytes", quantiles(tally.bytes)},
                  {"bytes_used", quantiles(tally.bytes_used)}};
  if (tally.captures + tally.captures_refused > 0) {
    summary["captures"] = {tally.captures_right, tally.captures};
    summary["captures_refused"] = tally.captures_refused;
    summary["capture_ns"] = quantiles(tally.capture_ns);
  }
  fmt::print("{}\n", dump_json(summary));
  const bool is_sound =
      tally.over == 0 && tally.disagreed == 0 && tally.captures_right == tally.captures;
  return is_sound && tally.compiled > 0 ? 0 : 1;
}

}  // namespace sluice
