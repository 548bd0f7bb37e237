// The grammars of a served model: compiled where requests come in, and kept for those that ask for
// the same.
//
//   Result<ConstraintMaker> maker = model.grammars->maker(source, end_tokens);
//   request.make_constraint = maker.value();
//
// Any thread. Grammars are compiled on threads of their own, each once, for all that ask and wait.
// A compile is cancelled when the last of them gives up. Kept grammars are bound in number and
// bytes; those not asked for longest go first. The vocabulary is prepared by the first compile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "batch/token_constraint.h"
#include "server/core/job_pool.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

class Grammars {
 public:
  struct Limits {
    std::uint64_t max_bytes = std::uint64_t{256} << 20;
    std::size_t max_grammars = 1024;
  };
  // `vocab_size`: the width of the logits.
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size, Limits limits);
  Grammars(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size);

  // As HttpRequest::why_unwanted; empty: what is asked for stays wanted.
  using WhyUnwanted = std::function<std::optional<Fault>()>;

  // Constraints of `source` that end with one of `end_tokens`. `is_optional`: a compile gets less
  // time, and a constraint that can go on no further binds no longer, where others end the request.
  // `unenforced` gets what the schemas ask for and the grammar does not hold (call_grammar.h).
  // Faults: those of compile(), 400; `no_end_token` where none of end_tokens is a token that is no
  // text; 429 where too many wait for a compile; that of `why_unwanted`.
  Result<ConstraintMaker> maker(const grammar::GrammarSource& source,
                                const std::vector<std::int32_t>& end_tokens,
                                bool is_optional = false,
                                std::vector<grammar::Unenforced>* unenforced = nullptr,
                                const WhyUnwanted& why_unwanted = {});

  // The captures of the texts of `source`, which is compiled each time. Faults are those of
  // grammar::compile_captures, and the last two of maker().
  Result<std::shared_ptr<const grammar::CaptureReader>> captures(
      const grammar::GrammarSource& source, const WhyUnwanted& why_unwanted = {});
  std::shared_ptr<const grammar::Vocabulary> vocabulary();

 private:
  // What a compile thread makes for those that wait.
  template <class T>
  struct Compile {
    std::promise<Result<T>> promise;
    std::shared_future<Result<T>> result = promise.get_future().share();
    // The grammar has it too: not a member, which would own its owner.
    const std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    int num_waiting = 1;  // guarded by mutex_
  };
  struct Made {
    std::shared_ptr<grammar::CompiledGrammar> grammar;
    std::vector<grammar::Unenforced> unenforced;
  };
  struct Entry {
    std::string key;
    std::shared_ptr<Compile<Made>> compile;
  };

  template <class T>
  bool submit(const std::shared_ptr<Compile<T>>& compile,
              std::function<Result<T>(const grammar::Budget&)> make, std::function<void()> then);
  // Why there is no result; none once it is there.
  template <class T>
  std::optional<Fault> wait(Compile<T>& compile, const WhyUnwanted& why_unwanted);
  // The compile of `key`, begun if need be; null when too many wait.
  std::shared_ptr<Compile<Made>> find_or_begin(const std::string& key,
                                               const grammar::GrammarSource& source,
                                               bool is_optional);
  // These under mutex_.
  void forget(const std::string& key, const Compile<Made>* compile);
  void make_room();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::int32_t vocab_size_;
  const Limits limits_;
  std::mutex vocabulary_mutex_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // guarded by vocabulary_mutex_
  std::mutex mutex_;
  std::list<Entry> entries_;                                            // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;  // both guarded by mutex_
  JobPool compilers_;  // last: its jobs use the above
};

}  // namespace sluice
