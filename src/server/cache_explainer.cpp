// POST /page/cache: what the prefix cache has of a prompt, for the page's monitor. The prompt is
// not run.
//
// Only the caller's namespace is looked at (R18). What others sent into the same namespace, and
// which requests those were, is told to a caller with a key of its own, whose requests they are,
// and to those who may administrate. A request's id lets its holder abort it.
#include "base/error.h"
#include "base/json.h"
#include "server/api/chat_prompt.h"
#include "server/api/handlers.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/api/unread_keys.h"
#include "server/core/errors.h"
#include "server/page/page.h"
#include "server/routes.h"
#include "text/tokenizer/detokenizer.h"

namespace sluice {
namespace {

constexpr std::string_view kKnown[] = {"model",
                                       "prompt",
                                       "messages",
                                       "cache_salt",
                                       "add_special_tokens",
                                       "tools",
                                       "tool_choice",
                                       "documents",
                                       "reasoning_effort",
                                       "add_generation_prompt",
                                       "continue_final_message",
                                       "chat_template",
                                       "chat_template_kwargs"};

// The fields of /tokenize, and `prompt` may be token ids.
Result<std::vector<std::int32_t>> read_prompt(const ServedModel& model, const Json& body,
                                              std::vector<std::string>& ignored) {
  note_unknown(body, kKnown, "", ignored);
  Result<bool> is_chat = is_chat_prompt(body);
  if (!is_chat) return is_chat.fault();
  if (*is_chat) {
    auto chat = read_chat_prompt(model, body);
    if (!chat) return chat.fault();
    note_unread_keys(body, model, *chat, ignored);
    return std::move(chat->ids);
  }
  note_chat_fields(body, ignored);
  const auto prompt = body.find("prompt");
  if (prompt->is_array()) return read_token_ids(model, *prompt, "prompt");
  if (!prompt->is_string())
    return wrong_type("prompt", "a string or an array of token ids", json_type_name(*prompt));
  bool add_special = true;
  const auto flag = body.find("add_special_tokens");
  if (flag != body.end() && !flag->is_null()) {
    if (!flag->is_boolean())
      return wrong_type("add_special_tokens", "true or false", json_type_name(*flag));
    add_special = flag->get<bool>();
  }
  return encode_prompt(model, prompt->get_ref<const std::string&>(), "prompt", add_special);
}

Result<std::optional<std::string>> read_text(const Json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return std::optional<std::string>();
  if (!found->is_string()) return wrong_type(name, "a string", json_type_name(*found));
  return std::optional(found->get<std::string>());
}

// The request that the engine calls `id`; null: it is not known any more.
Json request_json(const ServerState& state, std::uint64_t id,
                  std::chrono::steady_clock::time_point now) {
  const std::optional<RecentRequests::Entry> entry = state.recent_requests.find(id);
  if (!entry) return nullptr;
  const std::span<const Route> routes = route_table();
  return Json{{"id", entry->request_id},
              {"route", entry->route < routes.size() ? routes[entry->route].path : "other"},
              {"age_s", std::chrono::duration<double>(now - entry->arrival).count()}};
}

std::string text_of(const ServedModel& model, std::span<const std::int32_t> ids) {
  return model.tokenizer->decode(ids, false);
}

// The prompt in parts: tokens that a request of it would take from the cache ("cached"), that the
// cache has but cannot give ("unusable"), and that it has not ("new"). A part has one origin.
class Parts {
 public:
  Parts(const Tokenizer& tokenizer, std::span<const std::int32_t> ids)
      : ids_(ids), detokenizer_(tokenizer, false) {}

  // The tokens before `end` that are in no part.
  void add(std::int64_t end, const char* state, Json request) {
    if (end <= at_) return;
    check(end <= std::ssize(ids_), "the cache knows {} tokens of a prompt of {}", end, ids_.size());
    Json part{{"state", state}, {"tokens", end - at_}, {"request", std::move(request)}};
    std::string text;
    for (; at_ < end; ++at_) text += detokenizer_.push(ids_[static_cast<std::size_t>(at_)]);
    if (at_ == std::ssize(ids_)) text += detokenizer_.finish();
    part["text"] = std::move(text);
    parts_.push_back(std::move(part));
  }
  Json take() { return std::move(parts_); }

 private:
  const std::span<const std::int32_t> ids_;
  Detokenizer detokenizer_;
  std::int64_t at_ = 0;
  Json parts_ = Json::array();
};

Json explanation(const ServerState& state, const ServedModel& model,
                 std::span<const std::int32_t> ids, const PrefixLookup& found, bool tells_origins) {
  const auto now = std::chrono::steady_clock::now();
  const auto request = [&](std::uint64_t id) {
    return tells_origins ? request_json(state, id, now) : Json(nullptr);
  };
  Parts parts(*model.tokenizer, ids);
  std::int64_t end = 0;
  for (const PrefixLookup::Run& run : found.runs) {
    end += run.tokens;
    parts.add(std::min(end, found.usable_tokens), "cached", request(run.request));
    parts.add(end, "unusable", request(run.request));
  }
  parts.add(std::ssize(ids), "new", nullptr);

  Json divergence = nullptr;
  if (!found.other_tokens.empty()) {
    const auto rest = ids.subspan(static_cast<std::size_t>(found.common_tokens));
    const auto shown = rest.first(std::min(rest.size(), PrefixLookup::kMaxOtherTokens));
    divergence = Json{{"token", found.common_tokens},
                      {"prompt_text", text_of(model, shown)},
                      {"cached_text", nullptr},
                      {"request", request(found.other_request)}};
    if (tells_origins) divergence["cached_text"] = text_of(model, found.other_tokens);
  }
  return Json{{"num_tokens", ids.size()},
              {"cached_tokens", found.usable_tokens},
              {"common_tokens", found.common_tokens},
              {"tells_origins", tells_origins},
              {"parts", parts.take()},
              {"divergence", std::move(divergence)}};
}

}  // namespace

std::optional<Fault> handle_cache_explainer(ServerState& state, const HttpRequest& request,
                                            const std::shared_ptr<Responder>& responder) {
  if (auto fault = page_fault(state)) return fault;
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel& model = **serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  auto name = read_text(*body, "model");
  if (!name) return name.fault();
  if (auto fault = check_model(model, *name)) return fault;
  auto salt = read_text(*body, "cache_salt");
  if (!salt) return salt.fault();
  std::vector<std::string> ignored;
  auto ids = read_prompt(model, *body, ignored);
  if (!ids) return ids.fault();
  tell_ignored(*responder, ignored);

  Request lookup;
  lookup.prompt_ids = *ids;
  lookup.cache_namespace = cache_namespace(request.key_id, *salt);
  const std::optional<PrefixLookup> found = model.engine->look_up_prefix(std::move(lookup));
  if (!found)
    return Fault{400, "unsupported_task", "",
                 "This server has no prefix cache: it was switched off (--disable-radix-cache), or "
                 "the model is an encoder."};
  HttpReply reply;
  reply.body =
      dump_json(explanation(state, model, *ids, *found, request.key_id != 0 || request.admin));
  reply.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  responder->send(std::move(reply));
  return std::nullopt;
}

}  // namespace sluice
