// Responses that are kept: retrieve, delete, cancel, and their input items.
#include <algorithm>
#include <charconv>

#include "server/core/errors.h"
#include "server/core/generation.h"
#include "server/responses/handlers.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/";
constexpr int kDefaultLimit = 20, kMaxLimit = 100;

Fault not_found(std::string_view id) {
  return Fault{404, "response_not_found", "response_id",
               fmt::format("There is no response {}. Responses are kept within a bound, where "
                           "`store` is not false.",
                           shown_text(id, 96))};
}

HttpReply json_reply(std::string text) {
  HttpReply reply;
  reply.body = std::move(text);
  return reply;
}

// The value of a parameter of the query; empty: it has none.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(query.size(), end + 1));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name)
      return equals < pair.size() ? pair.substr(equals + 1) : std::string_view();
  }
  return {};
}

Result<HttpReply> input_items(const StoredResponse& record, std::string_view query) {
  const std::string_view order = query_value(query, "order"), after = query_value(query, "after"),
                         limit_text = query_value(query, "limit");
  int limit = kDefaultLimit;
  if (!limit_text.empty()) {
    const auto [end, error] =
        std::from_chars(limit_text.data(), limit_text.data() + limit_text.size(), limit);
    if (error != std::errc() || end != limit_text.data() + limit_text.size() || limit < 1 ||
        limit > kMaxLimit)
      return invalid_value("limit",
                           fmt::format("`limit` must be an integer from 1 to {}.", kMaxLimit));
  }
  if (!order.empty() && order != "asc" && order != "desc")
    return invalid_value("order", "`order` must be `asc` or `desc`.");
  Result<Json> items = parse_json(record.input_items, kArgumentsJson);
  if (!items) return items.fault();
  if (order != "asc") std::reverse(items->begin(), items->end());
  auto first = items->begin();
  if (!after.empty()) {
    first = std::find_if(items->begin(), items->end(),
                         [&](const Json& item) { return item["id"] == after; });
    if (first == items->end())
      return invalid_value("after",
                           fmt::format("No input item has the id {}.", shown_text(after, 96)));
    ++first;
  }
  Json data = Json::array();
  for (; first != items->end() && std::cmp_less(data.size(), limit); ++first)
    data.push_back(*first);
  Json list{{"object", "list"},
            {"data", data},
            {"first_id", data.empty() ? Json(nullptr) : data.front()["id"]},
            {"last_id", data.empty() ? Json(nullptr) : data.back()["id"]},
            {"has_more", first != items->end()}};
  return json_reply(dump_json(list));
}

// Ends it where it runs. The record is marked as such when the engine has let it go.
Result<HttpReply> cancel(ServerState& state, const HttpRequest& request,
                         const StoredResponse& record) {
  if (record.is_done)
    return Fault{
        400, "invalid_value", "response_id",
        fmt::format("The response {} is over and cannot be cancelled.", shown_text(record.id, 96))};
  for (const auto& generation : state.find(record.id, request.key_id, false)) generation->abort();
  Result<Json> response = parse_json(record.response, kArgumentsJson);
  if (!response) return response.fault();
  (*response)["status"] = "cancelled";
  return json_reply(dump_json(*response));
}

}  // namespace

std::string_view stored_response_methods(std::string_view path) {
  if (path.ends_with("/cancel")) return "POST";
  return path.ends_with("/input_items") ? "GET" : "GET DELETE";
}

std::optional<Fault> handle_stored_response(ServerState& state, const HttpRequest& request,
                                            const std::shared_ptr<Responder>& responder) {
  const auto served = state.serving();
  if (!served) return served.fault();
  std::string_view rest = std::string_view(request.path).substr(kPrefix.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string id(rest.substr(0, slash));
  const std::string_view action = rest.substr(std::min(rest.size(), slash + 1));
  const bool is_delete = request.method == "DELETE";
  const bool is_known = action.empty() || action == "cancel" || action == "input_items";
  if (!is_known)
    return Fault{404, "not_found", "",
                 fmt::format("There is no route {}.", shown_text(request.path, 96))};
  if (query_value(request.query, "stream") == "true")
    return unsupported("stream", "a kept response is answered whole.");
  if (is_delete) {
    state.responses->erase(id, request.owner, [responder, id](const Result<bool>& was_there) {
      if (!was_there || !*was_there)
        return responder->send(error_reply(was_there ? not_found(id) : was_there.fault()));
      responder->send(
          json_reply(dump_json(Json{{"id", id}, {"object", "response"}, {"deleted", true}})));
    });
    return std::nullopt;
  }
  const Result<std::shared_ptr<const StoredResponse>> found =
      state.responses->find(id, request.owner);
  if (!found) return found.fault();
  const std::shared_ptr<const StoredResponse>& record = *found;
  if (!record) return not_found(id);
  Result<HttpReply> reply = action == "input_items" ? input_items(*record, request.query)
                            : action == "cancel"    ? cancel(state, request, *record)
                                                    : json_reply(record->response);
  if (!reply) return reply.fault();
  responder->send(*std::move(reply));
  return std::nullopt;
}

}  // namespace sluice
