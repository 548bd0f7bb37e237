// What all handlers share: the options, the loaded model, the phase of the server, and the requests
// in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "engine/engine.h"
#include "server/access/access.h"
#include "server/core/cors.h"
#include "server/core/job_pool.h"
#include "server/core/metrics.h"
#include "server/core/recent_requests.h"
#include "server/http/http.h"
#include "storage/response_store.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

class ChatStore;
class ChatTemplate;
class Grammars;
class Generation;
struct PoolingModel;
class SpanExporter;

// A model that can be served. Immutable once attached.
struct ServedModel {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  std::shared_ptr<Grammars> grammars;
  // How states become embeddings and scores; never null once attached.
  std::shared_ptr<const PoolingModel> pooling;
  bool generates = true;             // false: an encoder, or --runner pooling
  std::vector<std::string> names;    // told to clients; the first one is the model's own
  std::vector<std::string> aliases;  // taken as well, but told to nobody
  bool any_name = false;             // every name is taken (--served-model-name '*')
  std::string reasoning_parser;      // empty: none
  std::string tool_parser;           // empty: none
  bool raw_tool_calls = false;       // --tool-call-parser none: calls come as text, as was asked
  std::int64_t vocab_size = 0;       // ids in requests are below: min(logits width, tokenizer size)
  std::int64_t created = 0;          // seconds since 1970
  std::shared_ptr<Trace> trace;      // null without --trace

  bool serves(std::string_view name) const;
};

enum class ServerPhase : std::uint8_t { kLoading, kServing, kDraining, kFailed };

class ServerState {
 public:
  // Opens the files of traces, keys, responses and chats. Error{kBadInput} when one cannot be used.
  ServerState(const Options& options, const ServerLimits& limits);

  // Start-up: what is being done, for the 503 that is answered meanwhile. Any thread.
  void set_progress(const std::string& step, double fraction);
  void attach(std::shared_ptr<const ServedModel> model);
  void load_failed();
  // From now on new requests get 503.
  void begin_drain();
  ServerPhase phase() const { return phase_.load(std::memory_order_acquire); }

  // The model, or why requests are not served now (503).
  Result<const ServedModel*> serving() const;
  // As serving(), but also a fault when the engine makes no progress: what /ready says.
  Result<const ServedModel*> ready() const;
  // The model if one is attached, whatever the phase; else null. It lives as long as this: requests
  // do not own it, since the engine holds them.
  const ServedModel* model() const;

  // Requests in flight, by the name that clients may abort them by. Any thread.
  bool add(const std::string& rid, std::uint64_t key_id,
           const std::shared_ptr<Generation>& generation);
  void remove(const std::string& rid, const Generation* generation);
  // Those named `rid` (exactly) that `key_id` may touch; all of them for an empty rid.
  std::vector<std::shared_ptr<Generation>> find(const std::string& rid, std::uint64_t key_id,
                                                bool admin) const;
  std::size_t num_generations() const;

  // The seed of a request that names none: with a fixed seed the k-th such request gets the same
  // one in every run.
  std::uint64_t draw_seed() const;

  const Options options;
  const ServerLimits limits;
  KeyPipeline keys;
  const CorsPolicy cors;
  const std::chrono::steady_clock::time_point started;
  const std::shared_ptr<Trace> trace;  // null without --trace
  ServerMetrics metrics;
  RecentRequests recent_requests;
  // Generations write to it when they end, which may be after this is gone.
  const std::shared_ptr<ResponseStore> responses;
  const std::shared_ptr<ChatStore> chats;     // null: the page's chats are in the browser
  const std::shared_ptr<SpanExporter> spans;  // null without --otlp-traces-endpoint

 private:
  struct Entry {
    std::uint64_t key_id;
    std::weak_ptr<Generation> generation;
  };

  mutable std::atomic<std::uint64_t> seeds_drawn_{0};
  std::atomic<ServerPhase> phase_{ServerPhase::kLoading};
  mutable std::mutex mutex_;
  std::string progress_step_ = "starting";         // guarded by mutex_
  double progress_fraction_ = 0;                   // guarded by mutex_
  std::shared_ptr<const ServedModel> model_;       // guarded by mutex_
  std::multimap<std::string, Entry> generations_;  // guarded by mutex_

 public:
  JobPool text_pool;  // last: its jobs use all of the above until it is gone
};

}  // namespace sluice
