// /tokenize, /detokenize (vLLM's shapes) and /abort_request (SGLang's).
#include "base/json.h"
#include "server/api/chat_prompt.h"
#include "server/api/handlers.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/api/unread_keys.h"
#include "server/core/errors.h"
#include "server/core/generation.h"

namespace sluice {
namespace {

std::optional<Fault> read_flag(const Json& body, const char* name, bool& out) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) return wrong_type(name, "true or false", json_type_name(*found));
  out = found->get<bool>();
  return std::nullopt;
}

void note_ignored(const Json& body, std::span<const std::string_view> known, Responder& responder) {
  std::vector<std::string> ignored;
  note_unknown(body, known, "", ignored);
  tell_ignored(responder, ignored);
}

void send_json(Responder& responder, const Json& json) {
  HttpReply reply;
  reply.body = dump_json(json);
  responder.send(std::move(reply));
}

std::optional<Fault> check_named_model(const ServedModel& model, const Json& body) {
  const auto name = body.find("model");
  if (name == body.end() || name->is_null()) return std::nullopt;
  if (!name->is_string()) return wrong_type("model", "a string", json_type_name(*name));
  return check_model(model, name->get<std::string>());
}

}  // namespace

std::optional<Fault> handle_tokenize(ServerState& state, const HttpRequest& request,
                                     const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel& model = **serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  if (auto fault = check_named_model(model, *body)) return fault;
  static constexpr std::string_view kKnown[] = {"model",
                                                "prompt",
                                                "messages",
                                                "add_special_tokens",
                                                "return_token_strs",
                                                "tools",
                                                "tool_choice",
                                                "documents",
                                                "reasoning_effort",
                                                "add_generation_prompt",
                                                "continue_final_message",
                                                "chat_template",
                                                "chat_template_kwargs"};
  std::vector<std::string> ignored;
  note_unknown(*body, kKnown, "", ignored);
  bool add_special = true, strings = false;
  if (auto fault = read_flag(*body, "add_special_tokens", add_special)) return fault;
  if (auto fault = read_flag(*body, "return_token_strs", strings)) return fault;

  std::vector<std::vector<std::int32_t>> lists;
  bool batch = false;
  const auto prompt = body->find("prompt");
  Result<bool> is_chat = is_chat_prompt(*body);
  if (!is_chat) return is_chat.fault();
  if (*is_chat) {
    auto chat = read_chat_prompt(model, *body);
    if (!chat) return chat.fault();
    note_unread_keys(*body, model, *chat, ignored);
    lists.push_back(std::move(chat->ids));
  } else if (prompt->is_string() || prompt->is_array()) {
    note_chat_fields(*body, ignored);
    batch = prompt->is_array();
    const Json list = batch ? *prompt : Json::array({*prompt});
    if (list.size() > 1024) return invalid_value("prompt", "At most 1024 texts are taken at once.");
    for (const Json& text : list) {
      if (!text.is_string())
        return wrong_type("prompt", "a string or an array of strings", json_type_name(text));
      // An empty text may still have the tokens that stand around every text.
      if (text.get_ref<const std::string&>().empty()) {
        EncodeOptions options;
        options.add_special_tokens = add_special;
        lists.push_back(model.tokenizer->encode("", options));
        continue;
      }
      auto ids = encode_prompt(model, text.get_ref<const std::string&>(), "prompt", add_special);
      if (!ids) return ids.fault();
      lists.push_back(std::move(*ids));
    }
  } else {
    return wrong_type("prompt", "a string or an array of strings", json_type_name(*prompt));
  }

  Json tokens = Json::array(), counts = Json::array(), texts = Json::array();
  for (const auto& ids : lists) {
    tokens.push_back(ids);
    counts.push_back(ids.size());
    Json spelt = Json::array();
    for (const std::int32_t id : ids) spelt.push_back(model.tokenizer->token_text(id));
    texts.push_back(std::move(spelt));
  }
  Json reply{{"tokens", batch ? tokens : tokens[0]},
             {"count", batch ? counts : counts[0]},
             {"max_model_len", model.engine->context_length()}};
  if (strings) reply["token_strs"] = batch ? texts : texts[0];
  tell_ignored(*responder, ignored);
  send_json(*responder, reply);
  return std::nullopt;
}

std::optional<Fault> handle_detokenize(ServerState& state, const HttpRequest& request,
                                       const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel& model = **serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  if (auto fault = check_named_model(model, *body)) return fault;
  static constexpr std::string_view kKnown[] = {"model", "tokens", "skip_special_tokens"};
  note_ignored(*body, kKnown, *responder);
  bool skip_special = false;
  if (auto fault = read_flag(*body, "skip_special_tokens", skip_special)) return fault;
  const auto tokens = body->find("tokens");
  if (tokens == body->end() || tokens->is_null()) return missing_field("tokens");
  const bool batch = tokens->is_array() && !tokens->empty() && (*tokens)[0].is_array();
  const Json lists = batch ? *tokens : Json::array({*tokens});
  if (lists.size() > 1024) return invalid_value("tokens", "At most 1024 lists are taken at once.");
  Json texts = Json::array();
  for (const Json& list : lists) {
    std::vector<std::int32_t> ids;
    if (!list.is_array() || !list.empty()) {
      auto read = read_token_ids(model, list, "tokens");
      if (!read) return read.fault();
      ids = std::move(*read);
    }
    texts.push_back(model.tokenizer->decode(ids, skip_special));
  }
  const Json text = batch ? std::move(texts) : std::move(texts[0]);
  send_json(*responder, Json{{"prompt", text}, {"text", text}});
  return std::nullopt;
}

std::optional<Fault> handle_abort_request(ServerState& state, const HttpRequest& request,
                                          const std::shared_ptr<Responder>& responder) {
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  static constexpr std::string_view kKnown[] = {"rid", "abort_all"};
  note_ignored(*body, kKnown, *responder);
  bool all = false;
  if (auto fault = read_flag(*body, "abort_all", all)) return fault;
  std::string rid;
  const auto named = body->find("rid");
  if (named != body->end() && !named->is_null()) {
    if (!named->is_string()) return wrong_type("rid", "a string", json_type_name(*named));
    rid = named->get<std::string>();
  }
  if (all && !request.admin)
    return Fault{403, "admin_only", "abort_all", "`abort_all` needs the admin key."};
  if (!all && rid.empty()) return missing_field("rid");
  const auto found = state.find(all ? "" : rid, request.key_id, request.admin);
  for (const std::shared_ptr<Generation>& generation : found) generation->abort();
  send_json(*responder, Json{{"success", true}, {"aborted", found.size()}});
  return std::nullopt;
}

}  // namespace sluice
