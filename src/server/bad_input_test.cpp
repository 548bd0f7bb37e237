// What bad bodies are answered: docs/rules.md, Limits and Answers, and the same
// for each field of the table by its own range.
#include <limits>

#include "server/api/request_fields.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

struct BodyCase {
  const char* name;
  const char* path;
  std::string body;
  int status;
  const char* param;
  const char* code;
};

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(text);
  return out;
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kGenerate = "/generate";

std::string chat(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "Hi"}], )" + fields + "}";
}
std::string completion(const std::string& fields) {
  return R"({"prompt": "Hi", )" + fields + "}";
}
std::string sampling(const std::string& fields) {
  return R"({"text": "Hi", "sampling_params": {)" + fields + "}}";
}
std::string tool(const std::string& function) {
  return chat(R"("tools": [{"type": "function", "function": )" + function + "}]");
}
std::string messages(const std::string& list) {
  return R"({"messages": )" + list + "}";
}

std::vector<BodyCase> json_cases() {
  return {
      {"DeepArrays", kChat, R"({"messages": )" + std::string(100000, '['), 400, "",
       "json_too_deep"},
      {"DeepTopLevelArrays", kChat, std::string(100000, '['), 400, "", "json_too_deep"},
      {"DeepObjects", kChat, repeated(R"({"a":)", 1000), 400, "", "json_too_deep"},
      {"Truncated", kChat, R"({"messages": [{"role")", 400, "", "invalid_json"},
      {"Trailing", kChat, R"({"messages": []} x)", 400, "", "invalid_json"},
      {"Bom", kChat, "\xEF\xBB\xBF{}", 400, "messages", "missing_required_parameter"},
      {"Nan", kChat, R"({"temperature": NaN})", 400, "", "invalid_json"},
      {"Infinity", kChat, R"({"temperature": -Infinity})", 400, "", "invalid_json"},
      {"Overflow", kChat, R"({"temperature": 1e999})", 400, "temperature", "invalid_value"},
      {"Comment", kChat, R"({/* */ "a": 1})", 400, "", "invalid_json"},
      {"InvalidUtf8", kChat, "{\"model\": \"\xFF\xFE\"}", 400, "", "invalid_json"},
      {"LoneSurrogate", kChat, R"({"model": "\ud800"})", 400, "", "invalid_json"},
      {"Duplicate", kChat, R"({"model": "tiny", "model": "tiny"})", 400, "", "duplicate_key"},
      {"DuplicateBehindText", kChat, R"({"user": "a\"b{", "model": "tiny", "model" : "tiny"})", 400,
       "", "duplicate_key"},
      // in a message the last value counts
      {"DuplicateInMessage", kChat, R"({"messages": [{"role": "user", "role": "nobody"}]})", 400,
       "messages.0.role", "invalid_value"},
      {"TopLevelArray", kChat, "[1, 2]", 400, "", "invalid_type"},
      {"TopLevelString", kChat, "\"text\"", 400, "", "invalid_type"},
      {"TopLevelNull", kChat, "null", 400, "", "invalid_type"},
      {"Empty", kChat, "", 400, "", "invalid_json"},
      {"Blank", kChat, "  \n ", 400, "", "invalid_json"},
  };
}

std::vector<BodyCase> field_cases(int vocab) {
  std::vector<BodyCase> rows = {
      {"NoMessages", kChat, R"({"model": "tiny"})", 400, "messages", "missing_required_parameter"},
      {"NoPrompt", kCompletions, "{}", 400, "prompt", "missing_required_parameter"},
      {"UnknownModel", kChat, chat(R"("model": "gpt-9")"), 404, "model", "model_not_found"},
      {"Adapter", kChat, chat(R"("model": "tiny:adapter")"), 400, "model", "unsupported_parameter"},
      {"ModelNumber", kChat, chat(R"("model": 3)"), 400, "model", "invalid_type"},
      {"SeedTooLarge", kChat, chat(R"("seed": 18446744073709551616)"), 400, "seed",
       "invalid_value"},
      {"SeedTooSmall", kChat, chat(R"("seed": -9223372036854775809)"), 400, "seed",
       "invalid_value"},
      {"SeedText", kChat, chat(R"("seed": "1")"), 400, "seed", "invalid_type"},
      {"TopLogprobsAlone", kChat, chat(R"("top_logprobs": 3)"), 400, "top_logprobs",
       "invalid_value"},
      {"Logprobs21", kCompletions, completion(R"("logprobs": 21)"), 400, "logprobs",
       "invalid_value"},
      {"TopLogprobs21", kChat, chat(R"("logprobs": true, "top_logprobs": 21)"), 400, "top_logprobs",
       "invalid_value"},
      {"PromptLogprobs", kChat, chat(R"("prompt_logprobs": -1)"), 400, "prompt_logprobs",
       "unsupported_parameter"},
      {"PromptLogprobsAll", kChat, chat(R"("prompt_logprobs": 151552)"), 400, "prompt_logprobs",
       "unsupported_parameter"},
      {"BestOf", kCompletions, completion(R"("best_of": 3)"), 400, "best_of",
       "unsupported_parameter"},
      {"Suffix", kCompletions, completion(R"("suffix": "x")"), 400, "suffix",
       "unsupported_parameter"},
      {"FormatUnknown", kChat, chat(R"("response_format": {"type": "yaml"})"), 400,
       "response_format.type", "invalid_value"},
      {"FormatWithoutSchema", kChat, chat(R"("response_format": {"type": "json_schema"})"), 400,
       "response_format.json_schema", "missing_required_parameter"},
      {"StructuredOutputsList", kChat, chat(R"("structured_outputs": [])"), 400,
       "structured_outputs", "invalid_type"},
      {"StructuredOutputsUnknown", kChat, chat(R"("structured_outputs": {"regexp": "a"})"), 400,
       "structured_outputs", "invalid_value"},
      {"SchemaImpossible", kChat,
       chat(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
               {"type": "string", "minLength": 5, "maxLength": 2}}})"),
       400, "response_format.json_schema.schema", "unsatisfiable_json_schema"},
      {"SchemaRemote", kChat, chat(R"("guided_json": {"$ref": "http://127.0.0.1:9/s.json"})"), 400,
       "guided_json", "unsupported_json_schema"},
      {"RegexWrong", kChat, chat(R"("guided_regex": "([a-z")"), 400, "guided_regex",
       "invalid_regex"},
      {"RegexBackReference", kChat, chat(R"("regex": "(a|b)\\1")"), 400, "regex",
       "unsupported_regex"},
      {"GrammarWrong", kChat, chat(R"j("guided_grammar": "root ::= (")j"), 400, "guided_grammar",
       "invalid_grammar"},
      {"GrammarEndless", kChat, chat(R"("ebnf": "root ::= \"a\" root")"), 400, "ebnf",
       "unsatisfiable_grammar"},
      {"GrammarTwice", kChat, chat(R"("regex": "a", "ebnf": "root ::= \"a\"")"), 400, "ebnf",
       "invalid_value"},
      {"ChoiceOfNumbers", kChat, chat(R"("guided_choice": [1])"), 400, "guided_choice",
       "invalid_type"},
      {"GrammarWithoutEnd", kChat, chat(R"("regex": "a", "ignore_eos": true)"), 400, "ignore_eos",
       "no_end_token"},
      {"ToolRequiredOfNone", kChat, chat(R"("tool_choice": "required")"), 400, "tool_choice",
       "invalid_value"},
      {"ToolNamedWithoutName", kChat, chat(R"("tool_choice": {"type": "function"})"), 400,
       "tool_choice.function", "missing_required_parameter"},
      {"ToolNamedOfNone", kChat,
       chat(R"("tool_choice": {"type": "function", "function": {"name": "f"}})"), 400,
       "tool_choice.function.name", "invalid_value"},
      {"ToolAllowedNothing", kChat,
       chat(R"("tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []})"), 400,
       "tool_choice.tools", "invalid_value"},
      {"ToolAllowedMode", kChat,
       chat(R"("tool_choice": {"type": "allowed_tools", "mode": "some", "tools": []})"), 400,
       "tool_choice.mode", "invalid_value"},
      {"ToolChoiceWord", kChat, chat(R"("tool_choice": "maybe")"), 400, "tool_choice",
       "invalid_value"},
      {"StreamOptionsAlone", kChat, chat(R"("stream_options": {"include_usage": true})"), 400,
       "stream_options", "invalid_value"},
      {"StopMany", kChat, chat(R"("stop": [)" + repeated("\"a\",", 16) + "\"a\"]"), 400, "stop",
       "invalid_value"},
      {"StopEmpty", kChat, chat(R"("stop": "")"), 400, "stop", "invalid_value"},
      {"StopLong", kChat, chat(R"("stop": ")" + std::string(257, 'a') + "\""), 400, "stop",
       "invalid_value"},
      {"StopNumber", kChat, chat(R"("stop": [1])"), 400, "stop", "invalid_type"},
      {"MinAboveMax", kChat, chat(R"("min_tokens": 9, "max_tokens": 8)"), 400, "min_tokens",
       "invalid_value"},
      {"MinAboveContext", kChat, chat(R"("min_tokens": 100000)"), 400, "min_tokens",
       "invalid_value"},
      {"CompletionMinAboveDefault", kCompletions, completion(R"("min_tokens": 17)"), 400,
       "min_tokens", "invalid_value"},
      {"GenerateMinAboveMax", kGenerate, sampling(R"("min_new_tokens": 9, "max_new_tokens": 8)"),
       400, "sampling_params.min_new_tokens", "invalid_value"},
      {"GenerateMinAboveDefault", kGenerate, sampling(R"("min_new_tokens": 129)"), 400,
       "sampling_params.min_new_tokens", "invalid_value"},
      {"MaxZero", kCompletions, completion(R"("max_tokens": 0)"), 400, "max_tokens",
       "invalid_value"},
      {"BiasNegativeId", kChat, chat(R"("logit_bias": {"-1": 1})"), 400, "logit_bias",
       "invalid_value"},
      {"BiasHugeId", kChat, chat(R"("logit_bias": {"4294967296": 1})"), 400, "logit_bias",
       "invalid_value"},
      {"BiasVocabId", kChat, chat(fmt::format(R"("logit_bias": {{"{}": 1}})", vocab)), 400,
       "logit_bias", "invalid_value"},
      {"BiasWord", kChat, chat(R"("logit_bias": {"a": 1})"), 400, "logit_bias", "invalid_value"},
      {"BiasTwice", kChat, chat(R"("logit_bias": {"5": 1, "05": 2})"), 400, "logit_bias",
       "invalid_value"},
      {"BiasRange", kChat, chat(R"("logit_bias": {"1": 101})"), 400, "logit_bias.1",
       "invalid_value"},
      {"BiasText", kChat, chat(R"("logit_bias": {"1": "x"})"), 400, "logit_bias.1", "invalid_type"},
      {"BiasArray", kChat, chat(R"("logit_bias": [1])"), 400, "logit_bias", "invalid_type"},
      {"StopIdVocab", kChat, chat(fmt::format(R"("stop_token_ids": [{}], "min_tokens": 1)", vocab)),
       400, "stop_token_ids", "invalid_value"},
      {"StopIdHuge", kChat, chat(R"("stop_token_ids": [18446744073709551615])"), 400,
       "stop_token_ids", "invalid_value"},
      {"ContextTooLong", kChat, chat(R"("max_tokens": 100000)"), 400, "messages",
       "context_length_exceeded"},
      {"PromptIdVocab", kCompletions, fmt::format(R"({{"prompt": [{}]}})", vocab), 400, "prompt",
       "token_id_out_of_range"},
      {"PromptIdNegative", kCompletions, R"({"prompt": [[1, -1]]})", 400, "prompt.0",
       "token_id_out_of_range"},
      {"PromptEmptyText", kCompletions, R"({"prompt": []})", 400, "prompt", "empty_prompt"},
      {"PromptEmptyIds", kCompletions, R"({"prompt": [[]]})", 400, "prompt.0", "empty_prompt"},
      {"PromptMixed", kCompletions, R"({"prompt": [1, "a"]})", 400, "prompt", "invalid_type"},
      {"PromptObject", kCompletions, R"({"prompt": {}})", 400, "prompt", "invalid_type"},
      {"GenerateBoth", kGenerate, R"({"text": "a", "input_ids": [1]})", 400, "text",
       "missing_required_parameter"},
      {"GenerateNothing", kGenerate, "{}", 400, "text", "missing_required_parameter"},
      {"GenerateImage", kGenerate, R"({"text": "a", "image_data": "http://169.254.169.254/"})", 400,
       "image_data", "unsupported_parameter"},
      {"GenerateLora", kGenerate, R"({"text": "a", "lora_path": "x"})", 400, "lora_path",
       "unsupported_parameter"},
      {"GenerateSchema", kGenerate, sampling(R"("json_schema": "{")"), 400,
       "sampling_params.json_schema", "invalid_json"},
      {"GenerateStart", kGenerate,
       R"({"text": "a", "return_logprob": true, "logprob_start_len": 100})", 400,
       "logprob_start_len", "invalid_value"},
      {"GenerateParams", kGenerate, R"({"text": "a", "sampling_params": [1]})", 400,
       "sampling_params", "invalid_type"},
      {"LongPrompt", kGenerate, R"({"text": ")" + std::string(10 << 20, 'a') + "\"}", 400, "text",
       "context_length_exceeded"},
      {"LongChat", kChat,
       messages(R"([{"role": "user", "content": ")" + std::string(10 << 20, 'a') + "\"}]"), 400,
       "messages", nullptr},
  };
  std::string biases;
  for (int i = 0; i < 1025; ++i) biases += fmt::format("{}\"{}\": 1", i ? ", " : "", i);
  rows.push_back({"BiasMany", kChat, chat("\"logit_bias\": {" + biases + "}"), 400, "logit_bias",
                  "invalid_value"});
  return rows;
}

std::vector<BodyCase> message_cases() {
  std::string many_tools;
  for (int i = 0; i < 10000; ++i)
    many_tools +=
        fmt::format(R"({}{{"type": "function", "function": {{"name": "f{}"}}}})", i ? "," : "", i);
  std::vector<BodyCase> rows = {
      {"Empty", kChat, messages("[]"), 400, "messages", "invalid_messages"},
      {"Text", kChat, messages("\"hi\""), 400, "messages", "invalid_type"},
      {"NotObject", kChat, messages("[1]"), 400, "messages.0", "invalid_type"},
      {"NoRole", kChat, messages(R"([{"content": "a"}])"), 400, "messages.0.role",
       "missing_required_parameter"},
      {"BadRole", kChat, messages(R"([{"role": "robot", "content": "a"}])"), 400, "messages.0.role",
       "invalid_value"},
      {"NoContent", kChat, messages(R"([{"role": "user"}])"), 400, "messages.0.content",
       "missing_required_parameter"},
      {"NumberContent", kChat, messages(R"([{"role": "user", "content": 3}])"), 400,
       "messages.0.content", "invalid_type"},
      {"BadPart", kChat, messages(R"([{"role": "user", "content": [{"type": "hologram"}]}])"), 400,
       "messages.0.content.0.type", "invalid_value"},
      {"PartWithoutText", kChat, messages(R"([{"role": "user", "content": [{"type": "text"}]}])"),
       400, "messages.0.content.0.text", "missing_required_parameter"},
      {"BadArguments", kChat,
       messages(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )"
                R"(5}}]}])"),
       400, "messages.0.tool_calls.0.function.arguments", "invalid_type"},
      {"TooMany", kChat,
       messages("[" + repeated(R"({"role": "user", "content": "a"},)", 4096) +
                R"({"role": "user", "content": "a"}])"),
       400, "messages", "invalid_messages"},
      {"ToolType", kChat, chat(R"("tools": [{"type": "foo", "function": {"name": "f"}}])"), 400,
       "tools.0.type", "invalid_tools"},
      {"ToolNameLong", kChat, tool(R"({"name": ")" + std::string(1 << 20, 'a') + "\"}"), 400,
       "tools.0.function.name", "invalid_tools"},
      {"ToolNameBad", kChat, tool(R"({"name": "a b"})"), 400, "tools.0.function.name",
       "invalid_tools"},
      {"ToolTwice", kChat,
       chat(R"("tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", )"
            R"("function": {"name": "f"}}])"),
       400, "tools.1.function.name", "invalid_tools"},
      {"ToolsMany", kChat, chat("\"tools\": [" + many_tools + "]"), 400, "tools", "invalid_tools"},
      {"ToolSchemaText", kChat, tool(R"({"name": "f", "parameters": "x"})"), 400,
       "tools.0.function.parameters", "invalid_type"},
      {"ToolSchemaType", kChat, tool(R"({"name": "f", "parameters": {"type": "array"}})"), 400,
       "tools.0.function.parameters.type", "invalid_tools"},
      {"ToolStrictWord", kChat, tool(R"({"name": "f", "strict": "yes"})"), 400,
       "tools.0.function.strict", "invalid_type"},
      {"ToolStrictRemote", kChat,
       tool(R"({"name": "f", "strict": true, "parameters": {"$ref": "http://127.0.0.1:9/x"}})"),
       400, "tools", "unsupported_tool_schema"},
      {"Template", kChat, chat(R"("chat_template": "{{ 1 }}")"), 400, "chat_template",
       "unsupported_parameter"},
      {"ReservedKwargs", kChat, chat(R"("chat_template_kwargs": {"messages": []})"), 400,
       "chat_template_kwargs", "reserved_template_kwarg"},
      {"TokenKwargs", kChat, chat(R"("chat_template_kwargs": {"eos_token": "x"})"), 400,
       "chat_template_kwargs", "reserved_template_kwarg"},
      {"KwargsArray", kChat, chat(R"("chat_template_kwargs": [])"), 400, "chat_template_kwargs",
       "invalid_type"},
      {"Effort", kChat, chat(R"("reasoning_effort": "heroic")"), 400, "reasoning_effort",
       "invalid_value"},
      {"PromptAndContinue", kChat,
       chat(R"("add_generation_prompt": true, "continue_final_message": true)"), 400,
       "continue_final_message", "continue_final_message"},
  };
  for (const char* url :
       {"http://example.org/a.png", "file:///etc/passwd", "http://169.254.169.254/latest"})
    rows.push_back(
        {"Image", kChat,
         messages(fmt::format(
             R"([{{"role": "user", "content": [{{"type": "image_url", "image_url": {{"url": )"
             R"("{}"}}}}]}}])",
             url)),
         400, "messages.0.content.0.type", "unsupported_parameter"});
  return rows;
}

void expect_refused(TestServer& server, const std::vector<BodyCase>& rows) {
  for (const BodyCase& row : rows) {
    SCOPED_TRACE(row.name);
    const int before = server.engine->num_submitted();
    const ClientReply reply = server.call("POST", row.path, row.body);
    EXPECT_EQ(reply.status, row.status) << reply.body.substr(0, 300);
    EXPECT_EQ(reply.error("param"), row.param) << reply.body.substr(0, 300);
    if (row.code) {
      EXPECT_EQ(reply.error("code"), row.code) << reply.body.substr(0, 300);
    }
    EXPECT_LT(reply.body.size(), 1000u);
    EXPECT_EQ(server.engine->num_submitted(), before);
    EXPECT_EQ(server.call("GET", "/health").status, 200);
  }
  server.expect_healthy();
}

TEST(BadInput, Json) {
  TestServer server;
  expect_refused(server, json_cases());
}

TEST(BadInput, Fields) {
  TestServer server;
  expect_refused(server, field_cases(server.tokenizer->size()));
}

TEST(BadInput, MessagesAndTools) {
  TestServer server;
  expect_refused(server, message_cases());
}

// 31 MiB of numbers where an object must be: refused at the first byte; within an object, at the
// element limit.
TEST(BadInput, LargeArraysAreRefusedQuickly) {
  TestServer server;
  for (const bool top : {true, false}) {
    std::string body = top ? "[0" : R"({"prompt": [0)";
    body += repeated(",0", (31 << 20) / 2) + (top ? "]" : "]}");
    Client client(server.port(), 60000);
    client.send(request_text("POST", "/v1/completions", ""));
    client.read_reply();
    const auto start = std::chrono::steady_clock::now();
    const ClientReply reply = client.call("POST", "/v1/completions", body);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.error("code"), top ? "invalid_type" : "json_too_large");
    RecordProperty(top ? "top_ms" : "inner_ms", static_cast<int>(seconds * 1000));
  }
  server.expect_healthy();
}

// Each row of the field table refuses what lies outside its own range and what has another type,
// under its own name.
TEST(BadInput, EveryFieldOfTheTableKeepsItsRange) {
  TestServer server;
  const auto body_with = [](unsigned api, std::string_view name, const std::string& value) {
    const std::string field = fmt::format("\"{}\": {}", name, value);
    if (api == kChatApi) return std::pair(kChat, chat(field));
    if (api == kCompletionApi) return std::pair(kCompletions, completion(field));
    if (api == kNativeApi) return std::pair(kGenerate, R"({"text": "a", )" + field + "}");
    return std::pair(kGenerate, sampling(field));
  };
  int tried = 0;
  for (const FieldSummary& row : field_summaries()) {
    for (const unsigned api : {kChatApi, kCompletionApi, kNativeApi, kSamplingApi}) {
      if ((row.apis & api) == 0) continue;
      std::vector<std::string> bad;
      const bool number = row.kind == "number" || row.kind == "integer";
      if (number)
        bad = {fmt::format("{}", row.min - 1),
               fmt::format("{}", row.max * 2 + 1),
               "\"3\"",
               "true",
               "[1]",
               "1e38",
               "-3e9"};
      if (row.kind == "integer")
        bad.insert(bad.end(), {"1.5", "1000000000000", "9223372036854775808"});
      if (row.kind == "boolean") bad = {"1", "\"true\"", "[]"};
      if (row.kind == "string")
        bad = {"1", "{}", "\"" + std::string(static_cast<std::size_t>(row.max) + 1, 'a') + "\""};
      if (row.kind == "unsupported") bad = {"true", "\"x\"", "{\"a\": 1}", "[1]"};
      if (row.name == "rid") bad = {"1", "{}"};
      for (const std::string& value : bad) {
        SCOPED_TRACE(fmt::format("{} {} {}", row.name, api, value.substr(0, 40)));
        const auto [path, body] = body_with(api, row.name, value);
        const ClientReply reply = server.call("POST", path, body);
        EXPECT_EQ(reply.status, 400) << reply.body.substr(0, 300);
        EXPECT_EQ(reply.error("param"),
                  (api == kSamplingApi ? "sampling_params." : "") + std::string(row.name));
        ++tried;
      }
      // null is the same as leaving the field out.
      const auto [path, body] = body_with(api, row.name, "null");
      EXPECT_EQ(server.call("POST", path, body).status, 200) << row.name;
    }
  }
  EXPECT_GT(tried, 500);
  server.expect_healthy();
}

TEST(BadInput, ValuesAtTheEdgesAreTaken) {
  TestServer server;
  for (const char* fields : {R"("temperature": 0)",
                             R"("temperature": 100)",
                             R"("top_p": 1e-9)",
                             R"("top_p": 1)",
                             R"("top_k": -1)",
                             R"("top_k": 0)",
                             R"("min_p": 1)",
                             R"("frequency_penalty": -2)",
                             R"("presence_penalty": 2)",
                             R"("repetition_penalty": 2)",
                             R"("n": 1)",
                             R"("seed": 18446744073709551615)",
                             R"("seed": -9223372036854775808)",
                             R"("stop": ["a"])",
                             R"("stop": null)",
                             R"("logit_bias": {"0": -100, "1": 100})",
                             R"("tool_choice": "auto")",
                             R"("response_format": {"type": "text"})",
                             R"("user": "me", "metadata": {"a": 1}, "store": true)",
                             R"("no_such_field": {"a": [1]})",
                             R"("lora_path": null, "best_of": 1)",
                             R"("return_hidden_states": false)",
                             R"("reasoning_effort": "none")",
                             R"("tools": [])"}) {
    const ClientReply reply = server.call("POST", kChat, chat(fields));
    EXPECT_EQ(reply.status, 200) << fields << " " << reply.body;
  }
}

TEST(BadInput, SpecialTokensInTextAreOnlyText) {
  TestServer server;
  std::string text;
  for (std::int32_t id = 0; id < server.tokenizer->size(); ++id)
    if (server.tokenizer->is_special(id)) text += server.tokenizer->token_text(id);
  const Json body{{"messages", Json::array({Json{{"role", "user"}, {"content", text}}})}};
  EXPECT_EQ(server.call("POST", kChat, body.dump()).status, 200);
  server.expect_healthy();
}

TEST(BadInput, DetokenizeOfSplitCharactersGivesReplacements) {
  TestServer server;
  const auto ids = server.tokenizer->encode("\xF0\x9F\xA6\x8A", {.add_special_tokens = false});
  for (const std::int32_t id : ids) {
    const ClientReply reply = server.call("POST", "/detokenize", Json{{"tokens", {id}}}.dump());
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.json().contains("prompt"));
  }
  EXPECT_EQ(server.call("POST", "/detokenize", Json{{"tokens", ids}}.dump()).json()["prompt"],
            "\xF0\x9F\xA6\x8A");
  EXPECT_EQ(server.call("POST", "/detokenize", R"({"tokens": [-1]})").error("code"),
            "token_id_out_of_range");
  EXPECT_EQ(server.call("POST", "/detokenize", R"({"tokens": "a"})").error("code"), "invalid_type");
  EXPECT_EQ(server.call("POST", "/detokenize", "{}").error("param"), "tokens");
}

}  // namespace
}  // namespace sluice
