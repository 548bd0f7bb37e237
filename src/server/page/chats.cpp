// The page's chats, where the server keeps them (storage/chat_store.h).
#include <algorithm>

#include "base/json.h"
#include "server/core/errors.h"
#include "server/page/page.h"
#include "storage/chat_store.h"

namespace sluice {
namespace {

constexpr std::string_view kFolder = "/page/chats/";
constexpr std::size_t kMaxId = 64, kMaxTitle = 1024;

HttpReply json_reply(std::string text) {
  HttpReply reply;
  reply.body = std::move(text);
  reply.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  return reply;
}

bool is_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxId && std::ranges::all_of(id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
}

Fault no_chat(std::string_view id) {
  return Fault{404, "chat_not_found", "",
               fmt::format("There is no chat {}.", shown_text(id, kMaxId))};
}

// What the list of chats shows of one.
Result<ChatHead> read_head(const std::string& id, std::string_view body) {
  const Result<Json> chat = parse_json(body, kArgumentsJson);
  if (!chat) return chat.fault();
  if (!chat->is_object()) return invalid_value("", "A chat must be a JSON object.");
  const auto text = [&](const char* key) {
    const auto found = chat->find(key);
    return found != chat->end() && found->is_string() ? found->get<std::string>() : "";
  };
  if (text("id") != id) return invalid_value("id", "`id` must be that of the path.");
  const auto updated = chat->find("updated");
  if (updated == chat->end() || !updated->is_number_integer())
    return invalid_value("updated", "`updated` must be an integer: milliseconds since 1970.");
  ChatHead head{id, text("title"), updated->get<std::int64_t>()};
  if (head.title.size() > kMaxTitle)
    return invalid_value("title", fmt::format("`title` may have at most {} bytes.", kMaxTitle));
  return head;
}

}  // namespace

std::optional<Fault> handle_chats(ServerState& state, const HttpRequest& request,
                                  const std::shared_ptr<Responder>& responder) {
  if (const auto fault = page_fault(state)) return fault;
  Json list = Json::array();
  if (state.chats) {
    const Result<std::vector<ChatHead>> heads = state.chats->list(request.owner);
    if (!heads) return heads.fault();
    for (const ChatHead& head : heads.value())
      list.push_back(Json{{"id", head.id}, {"title", head.title}, {"updated", head.updated}});
  }
  responder->send(json_reply(dump_json(Json{{"object", "list"},
                                            {"store", state.chats ? "server" : "browser"},
                                            {"data", std::move(list)}})));
  return std::nullopt;
}

std::optional<Fault> handle_chat(ServerState& state, const HttpRequest& request,
                                 const std::shared_ptr<Responder>& responder) {
  if (const auto fault = page_fault(state)) return fault;
  if (!state.chats)
    return Fault{404, "not_found", "", "This server leaves chats to browsers; see --page-store."};
  const std::string id = request.path.substr(kFolder.size());
  if (!is_id(id))
    return invalid_value(
        "id", fmt::format("The id of a chat has 1 to {} letters, digits, - and _.", kMaxId));
  if (request.method == "PUT") {
    Result<ChatHead> head = read_head(id, request.body);
    if (!head) return head.fault();
    state.chats->save(*std::move(head), request.owner, request.body,
                      [responder](std::optional<Fault> fault) {
                        responder->send(fault ? error_reply(*fault) : json_reply("{}"));
                      });
    return std::nullopt;
  }
  if (request.method == "DELETE") {
    state.chats->erase(id, request.owner, [responder, id](const Result<bool>& was_there) {
      if (!was_there) return responder->send(error_reply(was_there.fault()));
      responder->send(*was_there ? json_reply("{}") : error_reply(no_chat(id)));
    });
    return std::nullopt;
  }
  Result<std::optional<std::string>> chat = state.chats->load(id, request.owner);
  if (!chat) return chat.fault();
  if (!*chat) return no_chat(id);
  responder->send(json_reply(**std::move(chat)));
  return std::nullopt;
}

}  // namespace sluice
