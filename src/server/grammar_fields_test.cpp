// Which fields may bind an answer together, and what their faults say in each protocol.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kGenerate = "/generate";
constexpr const char* kMessages = "/v1/messages";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kOllama = "/api/chat";

std::string body_of(std::string_view path, const std::string& fields) {
  const std::string more = fields.empty() ? "" : ", " + fields;
  if (path == kResponses) return R"({"model": "tiny", "input": "Hi")" + more + "}";
  if (path == kGenerate) return R"({"text": "Hi", "sampling_params": {)" + fields + "}}";
  return R"({"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}])" +
         more + "}";
}

// The fake engine has no end token of its own, without which no grammar ends.
void set_end_token(TestServer& server) {
  server.engine->generation.eos_token_ids = {server.tokenizer->eos_id().value()};
}

struct Case {
  const char* path;
  std::string fields;
  std::string param;  // of the protocols that tell it
  std::vector<std::string> words;
};

void expect_refused(TestServer& server, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(one.path) + " " + one.fields);
    const ClientReply reply = server.call("POST", one.path, body_of(one.path, one.fields));
    EXPECT_EQ(reply.status, 400) << reply.body;
    if (one.path != std::string_view(kMessages) && one.path != std::string_view(kOllama)) {
      EXPECT_EQ(reply.error("param"), one.param) << reply.body;
    }
    for (const std::string& word : one.words)
      EXPECT_NE(reply.body.find(word), std::string::npos) << word << " " << reply.body;
  }
}

TEST(GrammarFields, NoSchemaIsLeftWithoutEffect) {
  TestServer server;
  set_end_token(server);
  const std::string schema = R"({"type": "object"})";
  const std::string wrapped = R"("json_schema": {"schema": )" + schema + "}";
  expect_refused(
      server,
      {
          {kChat,
           R"("response_format": {"type": "text", )" + wrapped + "}",
           "response_format.json_schema",
           {"`text`", "`json_schema`"}},
          {kGenerate,
           R"("response_format": {"type": "text", )" + wrapped + "}",
           "sampling_params.response_format.json_schema",
           {"`text`"}},
          {kChat,
           R"("response_format": {"type": "json_object", )" + wrapped + "}",
           "response_format.json_schema",
           {"`json_object`"}},
          {kChat,
           R"("response_format": {"type": "text", "schema": )" + schema + "}",
           "response_format.schema",
           {"`json_object`"}},
          {kChat,
           R"("response_format": {"type": "json_schema", "schema": {}, )" + wrapped + "}",
           "response_format.schema",
           {"`response_format.json_schema`"}},
          {kChat,
           R"("response_format": {"type": "json_object", "schema": {"type": "nope"}})",
           "response_format.schema",
           {"/type"}},
          {kChat,
           R"("response_format": {"type": "json_object", "schema": 3})",
           "response_format.schema",
           {"not a number"}},
          {kResponses,
           R"("text": {"format": {"type": "text", "schema": {}}})",
           "text.format.schema",
           {"`json_schema`", "`text`"}},
          {kMessages,
           R"("output_format": {"type": "json_schema", "schema": {}}, "output_config": {"format": )"
           R"({"type": "json_schema", "schema": {}}})",
           "",
           {"`output_format` and `output_config.format`"}},
          {kChat,
           R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
           "structured_outputs.disable_additional_properties",
           {"additionalProperties"}},
      });
  for (const char* path : {kChat, kGenerate, kMessages, kResponses, kOllama}) {
    const std::string name =
        std::string(path == std::string_view(kGenerate) ? "sampling_params." : "") +
        "guided_whitespace_pattern";
    expect_refused(server, {{path,
                             R"("guided_whitespace_pattern": "[ ]?")",
                             name,
                             {"`" + name + "`", "disable_any_whitespace"}}});
  }
  // What asks for nothing stays allowed.
  for (const char* fields : {R"("response_format": {"type": "text", "json_schema": null})",
                             R"("response_format": {"type": "json_object", "schema": null})",
                             R"("guided_whitespace_pattern": null)"})
    EXPECT_EQ(server.call("POST", kChat, body_of(kChat, fields)).status, 200) << fields;
}

TEST(GrammarFields, FaultsSayWhatWasSeen) {
  TestServer server;
  expect_refused(
      server,
      {
          {kChat, R"("response_format": {"type": "yaml"})", "response_format.type", {"not `yaml`"}},
          {kChat, R"("response_format": {"type": 3})", "response_format.type", {"not 3"}},
          {kChat, R"("response_format": {})", "response_format.type", {"required"}},
          {kChat, R"("tool_choice": "any")", "tool_choice", {"not `any`"}},
          {kChat, R"("tool_choice": {"type": "tool"})", "tool_choice.type", {"not `tool`"}},
          {kChat,
           R"("tool_choice": {"type": "allowed_tools", "mode": "some", "tools": []})",
           "tool_choice.mode",
           {"not `some`"}},
          {kResponses, R"("text": {"format": {"type": "xml"}})", "text.format.type", {"not `xml`"}},
          {kMessages, R"("tool_choice": {"type": "some"})", "", {"not `some`"}},
          {kMessages,
           R"("output_config": {"format": {"type": "xml", "schema": {}}})",
           "",
           {"not `xml`"}},
          {kChat, R"("grammar": "")", "grammar", {"`grammar`: "}},
          {kChat, R"("regex": "(", "seed": 1)", "regex", {"`regex`"}},
      });
}

TEST(GrammarFields, TwoGrammarsAreNamedAsTheClientWroteThem) {
  TestServer server;
  const std::string regex = R"(, "regex": "a")";
  expect_refused(
      server,
      {
          {kChat,
           R"("response_format": {"type": "json_object"})" + regex,
           "regex",
           {"`response_format` and `regex`"}},
          {kResponses,
           R"("text": {"format": {"type": "json_object"}})" + regex,
           "regex",
           {"`text.format` and `regex`"}},
          {kResponses,
           R"("text": {"format": {"type": "json_schema", "name": "a", "schema": {}}})" + regex,
           "regex",
           {"`text.format.schema` and `regex`"}},
          {kMessages,
           R"("output_config": {"format": {"type": "json_schema", "schema": {}}})" + regex,
           "",
           {"`output_config.format.schema` and `regex`"}},
          {kOllama, R"("format": {"type": "object"})" + regex, "", {"`format` and `regex`"}},
          {kOllama, R"("format": "json")" + regex, "", {"`format` and `regex`"}},
      });
}

TEST(GrammarFields, IgnoredKeywordsAreNamedAsTheClientWroteThem) {
  TestServer server;
  set_end_token(server);
  const std::string schema = R"({"type": "object", "properties": {"a": {"x-order": 1}}})";
  const auto ignored = [&](const char* path, const std::string& fields) {
    const ClientReply reply = server.call("POST", path, body_of(path, fields));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const auto found = reply.headers.find("x-ignored-fields");
    return found == reply.headers.end() ? std::string() : found->second;
  };
  EXPECT_EQ(ignored(kMessages,
                    R"("tools": [{"name": "g", "strict": true, "input_schema": )" + schema + "}]"),
            "tools.g.input_schema#/properties/a/x-order");
  EXPECT_EQ(ignored(kResponses, R"("tools": [{"type": "function", "name": "g", "strict": true, )"
                                R"("parameters": )" +
                                    schema + "}]"),
            "tools.g.parameters#/properties/a/x-order");
  EXPECT_EQ(ignored(kResponses, R"("text": {"format": {"type": "json_schema", "name": "a", )"
                                R"("schema": )" +
                                    schema + "}}"),
            "text.format.schema#/properties/a/x-order");
  EXPECT_EQ(
      ignored(kChat, R"("response_format": {"type": "json_object", "schema": )" + schema + "}"),
      "response_format.schema#/properties/a/x-order");
}

// The answer is a call, so that no grammar of the request binds it.
TEST(GrammarFields, BesideACallThatIsAskedForTheyAreIgnored) {
  TestServer server;
  set_end_token(server);
  const auto ignored = [&](const char* path, const std::string& choice, const std::string& field) {
    const std::string tool = R"("name": "g", "parameters": {"type": "object"})";
    const std::string tools = path == std::string_view(kMessages)
                                  ? R"({"name": "g", "input_schema": {"type": "object"}})"
                              : path == std::string_view(kResponses)
                                  ? R"({"type": "function", )" + tool + "}"
                                  : R"({"type": "function", "function": {)" + tool + "}}";
    const ClientReply reply = server.call(
        "POST", path,
        body_of(path, R"("tools": [)" + tools + R"(], "tool_choice": )" + choice + ", " + field));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const auto found = reply.headers.find("x-ignored-fields");
    return found == reply.headers.end() ? std::string() : found->second;
  };
  const std::string schema = R"({"type": "json_schema", "json_schema": {"schema": {}}})";
  const std::string named = R"({"type": "function", "function": {"name": "g"}})";
  const std::string allowed = R"({"type": "allowed_tools", "mode": "required", "tools": )"
                              R"([{"type": "function", "function": {"name": "g"}}]})";
  for (const std::string& choice : {std::string("\"required\""), named, allowed}) {
    EXPECT_EQ(ignored(kChat, choice, R"("response_format": )" + schema), "response_format");
    EXPECT_EQ(ignored(kChat, choice, R"("response_format": {"type": "json_object"})"),
              "response_format");
    EXPECT_EQ(ignored(kChat, choice, R"("structured_outputs": {"choice": ["a"]})"),
              "structured_outputs");
    for (const std::string name : {"regex", "guided_regex"})
      EXPECT_EQ(ignored(kChat, choice, "\"" + name + R"(": "a")"), name);
    EXPECT_EQ(ignored(kChat, choice, R"("guided_choice": ["a"])"), "guided_choice");
    EXPECT_EQ(ignored(kChat, choice, R"("ebnf": "root ::= \"a\"")"), "ebnf");
    EXPECT_EQ(ignored(kChat, choice, R"("response_format": {"type": "text"})"), "");
  }
  const std::string format = R"({"format": {"type": "json_schema", "name": "a", "schema": {}}})";
  EXPECT_EQ(ignored(kResponses, "\"required\"", R"("text": )" + format), "text.format");
  EXPECT_EQ(ignored(kResponses, R"({"type": "function", "name": "g"})", R"("regex": "a")"),
            "regex");
  const std::string anthropic = R"({"type": "json_schema", "schema": {}})";
  for (const std::string choice : {R"({"type": "any"})", R"({"type": "tool", "name": "g"})"}) {
    EXPECT_EQ(ignored(kMessages, choice, R"("output_config": {"format": )" + anthropic + "}"),
              "output_config.format");
    EXPECT_EQ(ignored(kMessages, choice, R"("output_format": )" + anthropic), "output_format");
  }
  // With `auto` it binds the answers that are no call.
  EXPECT_EQ(ignored(kChat, "\"auto\"", R"("regex": "a")"), "");
}

TEST(GrammarFields, EmptyValuesAreNotTakenForNone) {
  TestServer server;
  set_end_token(server);
  for (const std::string path : {kChat, kGenerate, kMessages, kResponses, kOllama}) {
    const std::string prefix = path == kGenerate ? "sampling_params." : "";
    const auto refused = [&](const std::string& name, const std::string& value,
                             const std::string& word) {
      expect_refused(server, {{path.c_str(), "\"" + name + "\": " + value, prefix + name, {word}}});
    };
    refused("guided_choice", "[]", "0 strings");
    refused("guided_choice", "{}", "not an object");
    refused("structural_tag", "{}", "`" + prefix + "structural_tag");
    for (const std::string name : {"guided_regex", "guided_grammar", "regex", "ebnf", "grammar"}) {
      refused(name, "[]", "not an array");
      refused(name, "{}", "not an object");
    }
    for (const std::string name : {"guided_choice", "structural_tag", "regex"}) {
      const std::string fields = "\"" + name + "\": null";
      EXPECT_EQ(server.call("POST", path, body_of(path, fields)).status, 200) << fields;
    }
  }
}

TEST(GrammarFields, WhatNeverEndsIsNamed) {
  TestServer server;
  set_end_token(server);
  const std::string format = R"("response_format": {"type": "json_schema", "json_schema": )"
                             R"({"schema": {"type": "object"}}}, "ignore_eos": true)";
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "g", )"
                            R"("parameters": {"type": "object"}}}], "tool_choice": "required", )"
                            R"("ignore_eos": true)";
  expect_refused(server,
                 {{kChat, format, "ignore_eos", {"`response_format.json_schema.schema`"}},
                  {kChat, tools, "ignore_eos", {"`ignore_eos` and `tools` exclude each other"}},
                  {kGenerate,
                   R"("regex": "a", "ignore_eos": true)",
                   "sampling_params.ignore_eos",
                   {"`sampling_params.ignore_eos` and `sampling_params.regex`"}}});
}

TEST(GrammarFields, DeepSchemasAreToldTheLimitAndTheWayAround) {
  TestServer server;
  set_end_token(server);
  std::string schema = R"({"type": "integer"})";
  for (int i = 0; i < 40; ++i) schema = R"({"properties": {"a": )" + schema + "}}";
  expect_refused(server, {{kChat,
                           R"("guided_json": )" + schema,
                           "",
                           {"82 levels", "at most 64", "512", "`guided_json`"}}});
  const ClientReply reply =
      server.call("POST", kChat, body_of(kChat, R"("guided_json": )" + Json(schema).dump()));
  EXPECT_EQ(reply.status, 200) << reply.body;
}

}  // namespace
}  // namespace sluice
