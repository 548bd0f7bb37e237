#include "server/core/server_state.h"

#include <algorithm>

#include "base/hash.h"
#include "server/http/request_id.h"
#include "storage/chat_store.h"
#include "telemetry/span_exporter.h"

namespace sluice {
namespace {

// Without a completed step for so long, with work queued, a server is not ready (G8).
constexpr double kStallSeconds = 10;
constexpr int kTextThreads = 2;

// The bounds of the options belong to the file where there is one, else to memory.
std::shared_ptr<ResponseStore> make_response_store(const Options& options) {
  const auto bound = [](auto& limit, std::int64_t asked) {
    if (asked > 0) limit = static_cast<std::remove_reference_t<decltype(limit)>>(asked);
  };
  ResponseStore::Limits memory;
  ResponseFile::Limits file;
  const std::int64_t bytes = options.response_store_max_bytes,
                     entries = options.response_store_max_entries;
  if (options.response_store.empty()) {
    bound(memory.max_bytes, bytes);
    bound(memory.max_responses, entries);
    return std::make_shared<ResponseStore>(memory);
  }
  bound(file.max_bytes, bytes);
  bound(file.max_responses, entries);
  return std::make_shared<ResponseStore>(memory, options.response_store, file);
}

std::shared_ptr<ChatStore> make_chat_store(const Options& options) {
  if (options.page_store.empty() || options.page_store == "browser") return nullptr;
  return std::make_shared<ChatStore>(options.page_store, ChatStore::Limits{});
}

std::shared_ptr<SpanExporter> make_exporter(const Options& options) {
  if (options.otlp_traces_endpoint.empty()) return nullptr;
  return std::make_shared<SpanExporter>(read_export_settings(options.otlp_traces_endpoint));
}

}  // namespace

bool ServedModel::serves(std::string_view name) const {
  const auto has = [&](const std::vector<std::string>& list) {
    return std::ranges::find(list, name) != list.end();
  };
  return any_name || has(names) || has(aliases);
}

ServerState::ServerState(const Options& server_options, const ServerLimits& server_limits)
    : options(server_options),
      limits(server_limits),
      keys({server_options.api_keys, server_options.admin_api_key, server_options.api_key_file,
            !server_options.admin_socket.empty(), server_options.metrics_open}),
      cors(server_options),
      started(std::chrono::steady_clock::now()),
      trace(server_options.trace.empty() ? nullptr : std::make_shared<Trace>(server_options.trace)),
      responses(make_response_store(server_options)),
      chats(make_chat_store(server_options)),
      spans(make_exporter(server_options)),
      text_pool(kTextThreads) {}

void ServerState::set_progress(const std::string& step, double fraction) {
  std::lock_guard lock(mutex_);
  progress_step_ = step;
  progress_fraction_ = fraction;
}

void ServerState::attach(std::shared_ptr<const ServedModel> model) {
  {
    std::lock_guard lock(mutex_);
    model_ = std::move(model);
  }
  ServerPhase loading = ServerPhase::kLoading;
  phase_.compare_exchange_strong(loading, ServerPhase::kServing);
}

void ServerState::load_failed() {
  phase_.store(ServerPhase::kFailed);
}
void ServerState::begin_drain() {
  phase_.store(ServerPhase::kDraining);
}

const ServedModel* ServerState::model() const {
  std::lock_guard lock(mutex_);
  return model_.get();
}

Result<const ServedModel*> ServerState::serving() const {
  switch (phase()) {
    case ServerPhase::kLoading: {
      std::lock_guard lock(mutex_);
      return Fault{503, "loading", "",
                   fmt::format("The model is loading: {}, {:.0f} %.", progress_step_,
                               100 * progress_fraction_)};
    }
    case ServerPhase::kDraining:
      return Fault{503, "draining", "", "The server is shutting down and takes no new requests."};
    case ServerPhase::kFailed:
      return Fault{503, "engine_failed", "",
                   "The model could not be loaded; the log has the cause."};
    case ServerPhase::kServing:
      break;
  }
  const ServedModel* const served = model();
  if (!served->engine->failure().empty())
    return Fault{503, "engine_failed", "",
                 "The engine has failed for good; the log has the cause. Restart the server."};
  return served;
}

Result<const ServedModel*> ServerState::ready() const {
  Result<const ServedModel*> served = serving();
  if (!served) return served;
  const double stalled = (*served)->engine->stats().seconds_since_progress;
  if (stalled >= kStallSeconds)
    return Fault{503, "engine_stalled", "",
                 fmt::format("No step has completed for {:.0f} s with work queued.", stalled)};
  return served;
}

bool ServerState::add(const std::string& rid, std::uint64_t key_id,
                      const std::shared_ptr<Generation>& generation) {
  std::lock_guard lock(mutex_);
  const auto [first, last] = generations_.equal_range(rid);
  for (auto it = first; it != last; ++it)
    if (it->second.key_id == key_id && !it->second.generation.expired()) return false;
  generations_.emplace(rid, Entry{key_id, generation});
  return true;
}

void ServerState::remove(const std::string& rid, const Generation* generation) {
  std::lock_guard lock(mutex_);
  const auto [first, last] = generations_.equal_range(rid);
  for (auto it = first; it != last; ++it) {
    const std::shared_ptr<Generation> held = it->second.generation.lock();
    if (!held || held.get() == generation) {
      generations_.erase(it);
      return;
    }
  }
}

std::vector<std::shared_ptr<Generation>> ServerState::find(const std::string& rid,
                                                           std::uint64_t key_id, bool admin) const {
  std::vector<std::shared_ptr<Generation>> found;
  std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : generations_) {
    if ((!rid.empty() && name != rid) || (!admin && entry.key_id != key_id)) continue;
    if (std::shared_ptr<Generation> generation = entry.generation.lock())
      found.push_back(std::move(generation));
  }
  return found;
}

std::size_t ServerState::num_generations() const {
  std::lock_guard lock(mutex_);
  return generations_.size();
}

std::uint64_t ServerState::draw_seed() const {
  const std::optional<std::uint64_t> seed = fixed_seed(options);
  return seed ? hash_combine(*seed, seeds_drawn_.fetch_add(1)) : random_u64();
}

}  // namespace sluice
