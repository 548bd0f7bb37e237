#include "server/openapi.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/build.h"
#include "server/anthropic/messages_request.h"
#include "server/api/request_fields.h"
#include "server/embeddings/handlers.h"
#include "server/ollama/ollama_request.h"
#include "server/responses/responses_request.h"
#include "server/routes.h"

namespace sluice {
namespace {

// Schemas of what no table of ranges describes, by the name of the field.
struct FieldSchema {
  std::string_view name;
  const char* schema;
};
constexpr const char* kTexts =
    R"({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})";
constexpr FieldSchema kFieldSchemas[] = {
    {"messages",
     R"({"type": "array", "minItems": 1, "items": {"type": "object",
         "required": ["role", "content"],
         "properties": {"role": {"enum": ["user", "assistant", "system"]},
                        "content": {"type": "string"}}}})"},
    {"prompt", kTexts},
    {"input", kTexts},
    {"text", kTexts},
    {"tokens", R"({"type": "array", "items": {"type": "integer", "minimum": 0}})"},
    {"input_ids", R"({"type": "array", "items": {"type": "integer", "minimum": 0}})"},
    {"query", R"({"type": "string"})"},
    {"documents", R"({"type": "array", "items": {"type": "string"}})"},
    {"text_1", kTexts},
    {"text_2", kTexts},
    {"queries", kTexts},
    {"system", R"({"type": "string"})"},
    {"instructions", R"({"type": ["string", "null"]})"},
    {"previous_response_id", R"({"type": ["string", "null"]})"},
    {"store", R"({"type": ["boolean", "null"]})"},
    {"metadata", R"({"type": ["object", "null"], "additionalProperties": {"type": "string"}})"},
    {"truncation", R"({"enum": ["auto", "disabled", null]})"},
    {"include", R"({"type": ["array", "null"], "items": {"type": "string"}})"},
    {"encoding_format", R"({"enum": ["float", "base64", null]})"},
    {"tools", R"({"type": ["array", "null"], "items": {"type": "object"}, "maxItems": 128})"},
    {"chat_template_kwargs", R"({"type": ["object", "null"]})"},
    {"stop",
     R"({"oneOf": [{"type": "string"}, {"type": "null"},
                   {"type": "array", "items": {"type": "string"}, "maxItems": 16}]})"},
    {"stop_token_ids", R"({"type": ["array", "null"], "items": {"type": "integer"}})"},
    {"logit_bias", R"({"type": ["object", "null"], "additionalProperties": {"type": "number"}})"},
    {"stream_options", R"({"type": ["object", "null"]})"},
    {"response_format", R"({"type": ["object", "null"]})"},
    {"seed", R"({"type": ["integer", "null"]})"},
    {"sampling_seed", R"({"type": ["integer", "null"]})"},
    {"sampling_params", R"({"type": "object"})"},
    {"options", R"({"type": ["object", "null"]})"},
    {"raw", R"({"type": ["boolean", "null"]})"},
    {"stream", R"({"type": ["boolean", "null"]})"},
    {"model", R"({"type": ["string", "null"], "maxLength": 512})"},
    {"rid", R"({"type": "string"})"},
    {"cache_salt", R"({"type": ["string", "null"]})"},
    {"abort_all", R"({"type": "boolean"})"},
    {"dimensions", R"({"type": ["integer", "null"], "minimum": 1})"},
    {"top_n", R"({"type": ["integer", "null"], "minimum": 0})"},
    {"timeout", R"({"type": ["number", "null"], "minimum": 0, "maximum": 86400})"},
};

using ProtocolFields = std::span<const ProtocolField> (*)();

// The body of a route: fields of OpenAI's table, those of a protocol, or names alone.
struct Body {
  std::string_view path;
  unsigned apis = 0;  // FieldApi
  ProtocolFields fields = nullptr;
  std::vector<std::string_view> own = {};  // further fields
  std::vector<std::string_view> required = {};
};

const std::vector<Body>& bodies() {
  static const std::vector<Body> kBodies = {
      {"/v1/chat/completions", kChatApi, nullptr, {"messages", "tools"}, {"messages"}},
      {"/v1/completions", kCompletionApi, nullptr, {"prompt"}, {"prompt"}},
      {"/generate", kNativeApi, nullptr, {"text", "input_ids", "sampling_params"}, {}},
      {"/v1/responses", 0, responses_fields, {}, {"input"}},
      {"/v1/messages", 0, messages_fields, {}, {"messages", "max_tokens"}},
      {"/v1/messages/count_tokens", 0, messages_fields, {}, {"messages"}},
      {"/api/chat", 0, ollama_chat_fields, {}, {"messages"}},
      {"/api/generate", 0, ollama_generate_fields, {}, {"prompt"}},
      {"/api/embed", 0, ollama_embed_fields, {}, {"input"}},
      {"/api/embeddings", 0, ollama_embeddings_fields, {}, {"prompt"}},
      {"/api/show", 0, nullptr, {"model"}, {"model"}},
      {"/v1/embeddings", 0, embeddings_fields, {}, {"input"}},
      {"/pooling", 0, embeddings_fields, {}, {"input"}},
      {"/v1/rerank", 0, rerank_fields, {}, {"query", "documents"}},
      {"/v2/rerank", 0, rerank_fields, {}, {"query", "documents"}},
      {"/rerank", 0, rerank_fields, {}, {"query", "documents"}},
      {"/v1/score", 0, score_fields, {}, {"text_1", "text_2"}},
      {"/score", 0, score_fields, {}, {"text_1", "text_2"}},
      {"/classify", 0, classify_fields, {}, {"input"}},
      {"/v1/classify", 0, classify_fields, {}, {"input"}},
      {"/tokenize", 0, nullptr, {"model", "prompt", "messages"}, {}},
      {"/v1/tokenize", 0, nullptr, {"model", "prompt", "messages"}, {}},
      {"/detokenize", 0, nullptr, {"model", "tokens"}, {"tokens"}},
      {"/v1/detokenize", 0, nullptr, {"model", "tokens"}, {"tokens"}},
      {"/abort_request", 0, nullptr, {"rid", "abort_all"}, {}},
      {"/page/cache", 0, nullptr, {"model", "prompt", "messages", "cache_salt"}, {}},
  };
  return kBodies;
}

Json schema_by_name(std::string_view name) {
  const auto found = std::ranges::find(kFieldSchemas, name, &FieldSchema::name);
  return found == std::end(kFieldSchemas) ? Json::object() : Json::parse(found->schema);
}

// A bound as JSON's integer where it is whole: generators of code count with `maxLength`.
Json bound(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::trunc(value) == value && std::abs(value) <= kExact)
    return Json(static_cast<std::int64_t>(value));
  return Json(value);
}

Json schema_of(const FieldSummary& field) {
  if (field.kind == "number" || field.kind == "integer")
    return Json{{"type", {field.kind, "null"}},
                {"minimum", bound(field.min)},
                {"maximum", bound(field.max)}};
  if (field.kind == "boolean") return Json{{"type", {"boolean", "null"}}};
  if (field.kind == "string")
    return Json{{"type", {"string", "null"}}, {"maxLength", bound(field.max)}};
  if (field.kind == "ignored") return Json{{"description", "has no effect"}};
  if (field.kind == "unsupported")
    return Json{{"description", "refused, unless it asks for nothing"}, {"enum", {nullptr, false}}};
  return schema_by_name(field.name);
}

Json schema_of(const ProtocolField& field, const std::vector<FieldSummary>& chat) {
  switch (field.use) {
    case FieldUse::kChat: {
      const auto found = std::ranges::find_if(chat, [&](const FieldSummary& row) {
        return row.name == field.text && (row.apis & kChatApi) != 0;
      });
      return found == chat.end() ? schema_by_name(field.name) : schema_of(*found);
    }
    case FieldUse::kOwn:
      return schema_by_name(field.name);
    case FieldUse::kIgnored:
      return Json{{"description", "has no effect"}};
    case FieldUse::kRefused:
      break;
  }
  return Json{{"description", "refused, unless it asks for nothing: " + std::string(field.text)},
              {"enum", {nullptr, false}}};
}

Json body_schema(const Body& body) {
  static const std::vector<FieldSummary> kChat = field_summaries();
  Json properties = Json::object();
  for (const FieldSummary& field : kChat)
    if ((field.apis & body.apis) != 0) properties[std::string(field.name)] = schema_of(field);
  if (body.fields)
    for (const ProtocolField& field : body.fields())
      properties[std::string(field.name)] = schema_of(field, kChat);
  for (const std::string_view name : body.own) properties[std::string(name)] = schema_by_name(name);
  Json schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!body.required.empty()) schema["required"] = body.required;
  return schema;
}

// The statuses of docs/rules.md.
constexpr std::pair<int, const char*> kStatuses[] = {
    {400, "a bad value, with `param` and `code`"},
    {401, "no key, or an unknown one"},
    {403, "not with this key"},
    {404, "no such route, model or thing"},
    {405, "a wrong method"},
    {408, "a slow client"},
    {411, "no length"},
    {413, "too large"},
    {414, "a long path"},
    {415, "another type than JSON"},
    {417, "an unknown expectation"},
    {429, "too much waits; with Retry-After"},
    {431, "long headers"},
    {500, "a fault of the server"},
    {503, "loading, draining or failed; with Retry-After"},
    {504, "a deadline"},
};

Json responses_of(const Route& route) {
  Json content;
  const bool is_page = route.path == "/" || route.path == "/page/*";
  if (route.path == "/metrics") {
    content["text/plain"] = Json::object();
  } else if (is_page) {
    content["*/*"] = Json::object();
  } else {
    content["application/json"] = Json::object();
    if (route.generates) {
      const bool is_ollama = route.errors == ErrorShape::kOllama;
      content[is_ollama ? "application/x-ndjson" : "text/event-stream"] = Json::object();
    }
  }
  Json responses;
  responses["200"] = Json{{"description", "the answer"}, {"content", std::move(content)}};
  if (is_page) responses["304"] = Json{{"description", "the client has it"}};
  for (const auto& [status, meaning] : kStatuses)
    responses[std::to_string(status)] =
        Json{{"description", meaning},
             {"content", {{"application/json", {{"schema", {{"type", "object"}}}}}}}};
  return responses;
}

Json operation(const Route& route, const std::string& path, const std::string& method) {
  std::string id = method + path;
  std::ranges::replace_if(
      id, [](char c) { return c == '/' || c == '{' || c == '}' || c == '.'; }, '_');
  Json out{{"operationId", id}, {"responses", responses_of(route)}};
  Json parameters = Json::array();
  if (path.find("{id}") != std::string::npos)
    parameters.push_back(Json{{"name", "id"},
                              {"in", "path"},
                              {"required", true},
                              {"schema", {{"type", "string"}, {"minLength", 1}}}});
  if (path.ends_with("/input_items")) {
    parameters.push_back(Json{{"name", "limit"},
                              {"in", "query"},
                              {"schema", {{"type", "integer"}, {"minimum", 1}, {"maximum", 100}}}});
    parameters.push_back(
        Json{{"name", "order"}, {"in", "query"}, {"schema", {{"enum", {"asc", "desc"}}}}});
    parameters.push_back(
        Json{{"name", "after"}, {"in", "query"}, {"schema", {{"type", "string"}}}});
  }
  if (!parameters.empty()) out["parameters"] = std::move(parameters);
  if (route.access == Access::kOpen) out["security"] = Json::array();
  const auto body = std::ranges::find(bodies(), route.path, &Body::path);
  if (body != bodies().end())
    out["requestBody"] = Json{
        {"required", true}, {"content", {{"application/json", {{"schema", body_schema(*body)}}}}}};
  if (method == "put")
    out["requestBody"] = Json::parse(
        R"({"required": true, "content": {"application/json": {"schema": {"type": "object",
            "required": ["id", "updated"],
            "properties": {"id": {"type": "string"}, "title": {"type": "string"},
                           "updated": {"type": "integer"}}}}}})");
  return out;
}

// The paths of a row with the methods of each.
std::vector<std::pair<std::string, std::string>> paths_of(const Route& route) {
  const std::string methods(route.methods), path(route.path);
  if (path == "/v1/responses/*")
    return {{"/v1/responses/{id}", "GET DELETE"},
            {"/v1/responses/{id}/cancel", "POST"},
            {"/v1/responses/{id}/input_items", "GET"}};
  if (path.ends_with('*')) return {{path.substr(0, path.size() - 1) + "{id}", methods}};
  return {{path, methods}};
}

}  // namespace

Json openapi_document() {
  Json paths = Json::object();
  for (const Route& route : route_table())
    for (const auto& [path, methods] : paths_of(route)) {
      for (std::size_t begin = 0; begin < methods.size();) {
        const std::size_t end = std::min(methods.find(' ', begin), methods.size());
        std::string method = methods.substr(begin, end - begin);
        for (char& c : method) c = static_cast<char>(c | 0x20);
        paths[path][method] = operation(route, path, method);
        begin = end + 1;
      }
    }
  return Json{
      {"openapi", "3.1.0"},
      {"info", {{"title", "Sluice"}, {"version", kVersion}}},
      {"paths", std::move(paths)},
      {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      // With a key, or without one where the server has none.
      {"security", Json::array({Json{{"key", Json::array()}}, Json::object()})}};
}

HttpReply handle_openapi(ServerState&, const HttpRequest&) {
  static const std::string kText = dump_json(openapi_document());
  HttpReply reply;
  reply.body = kText;
  return reply;
}

}  // namespace sluice
