// What replies of this server and histories of other clients become.
#include <gtest/gtest.h>

#include "server/api/chat_prompt.h"

namespace sluice {
namespace {

// The messages as templates get them, or "param: code" of the fault.
std::string read(const std::string& messages) {
  const Result<Json> out = read_messages(Json::parse(messages));
  return out ? out->dump() : out.fault().param + ": " + out.fault().code;
}

struct Row {
  const char *given, *wanted;
};

TEST(ChatMessages, ContentOfEveryKind) {
  const Row rows[] = {
      {R"({"role": "assistant", "content": [{"type": "output_text", "text": "a"}, null, "b",
        {"type": "refusal", "refusal": "no"}, {"text": "c"}, {"type": "text", "text": null}]})",
       R"({"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},)"
       R"({"type":"text","text":"no"},{"type":"text","text":"c"},{"type":"text","text":""}]})"},
      {R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}]})",
       R"({"role":"assistant","content":[{"type":"text","text":"a"}],"reasoning_content":"t"})"},
      {R"({"role": "assistant", "content": [{"type": "thinking",
        "thinking": [{"type": "text", "text": "t"}], "closed": true},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}]})",
       R"({"role":"assistant","content":[],"reasoning_content":"t\ns"})"},
      {R"({"role": "assistant", "content": null, "refusal": "no"})",
       R"({"role":"assistant","content":"no"})"},
      {R"({"role": "assistant"})", R"({"role":"assistant","content":""})"},
      {R"({"role": "tool", "tool_call_id": "i", "content": null})",
       R"({"role":"tool","content":"","tool_call_id":"i"})"},
      {R"({"role": "tool", "tool_call_id": "i", "content": [{"type": "text", "text": "r"}]})",
       R"({"role":"tool","content":[{"type":"text","text":"r"}],"tool_call_id":"i"})"},
      {R"({"role": "function", "name": "f", "content": "r"})",
       R"({"role":"tool","content":"r","name":"f"})"},
      {R"({"role": "user", "content": [{"type": "input_text", "text": "a"}], "name": null})",
       R"({"role":"user","content":[{"type":"text","text":"a"}]})"},
  };
  for (const auto& [given, wanted] : rows)
    EXPECT_EQ(read(std::string("[") + given + "]"), std::string("[") + wanted + "]");
}

// A whole reply of this server, and one whose call max_tokens cut.
TEST(ChatMessages, RepliesComeBack) {
  EXPECT_EQ(
      read(
          R"([{"role": "assistant", "content": null, "refusal": null,
        "annotations": [], "audio": null,
        "function_call": null, "reasoning_content": "r", "tool_calls": [
        {"id": "call_1", "type": "function",
         "function": {"name": "f", "arguments": "{\"a\": "}}]}])"),
      R"([{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"call_1",)"
      R"("type":"function","function":{"name":"f","arguments":"{\"a\": "}}]}])");
  for (const char* arguments : {"null", "\"\"", "[]", "{}"})
    EXPECT_EQ(
        read(std::string(R"([{"role": "assistant", "content": "", "tool_calls": [{"id": null, )") +
             R"("index": 0, "function": {"name": "f", "arguments": )" + arguments + "}}]}]"),
        R"([{"role":"assistant","content":"","tool_calls":[{"index":0,"function":{"name":"f",)"
        R"("arguments":{}}}]}])");
  EXPECT_EQ(read(
                R"([{"role": "assistant", "content": null,
        "function_call": {"name": "f", "arguments": "{}"}}])"),
            R"([{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":"{}"}}]}])");
  EXPECT_EQ(read(
                R"([{"role": "assistant", "content": [
        {"type": "tool_use", "id": "i", "name": "f", "input": {"a": 1}}]}])"),
            R"([{"role":"assistant","content":[],"tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":{"a":1}},"id":"i"}]}])");
}

TEST(ChatMessages, Faults) {
  const Row rows[] = {
      {R"({"role": "user", "content": null})", "messages.0.content: missing_required_parameter"},
      {R"({"role": "user", "content": [{"type": "thinking", "thinking": "t"}]})",
       "messages.0.content.0.type: invalid_value"},
      {R"({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})",
       "messages.0.content.0.type: unsupported_parameter"},
      {R"({"role": "assistant", "content": [{"type": "thinking", "thinking": 3}]})",
       "messages.0.content.0.thinking: invalid_type"},
      {R"({"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]})",
       "messages.0.tool_calls.0.id: invalid_type"},
      {R"({"role": "assistant", "function_call": "f"})", "messages.0.function_call: invalid_type"},
      {R"({"role": "robot", "content": ""})", "messages.0.role: invalid_value"},
  };
  for (const auto& [given, wanted] : rows) EXPECT_EQ(read(std::string("[") + given + "]"), wanted);
}

}  // namespace
}  // namespace sluice
