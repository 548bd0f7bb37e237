// Calls of custom tools in the Responses API.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

// A response that ends inside the call, whole and streamed.
TEST(CustomCalls, ThatWereCutHaveTheToolsTextSoFar) {
  TestServer server;
  const auto ids = server.tokenizer->encode(
      "<tool_call>run\n<arg_key>input</arg_key>\n<arg_value>ls -l \"a b\"\n next</arg_value>\n"
      "</tool_call>",
      {.add_special_tokens = false});
  server.engine->set_script(ids);
  const std::string text = "ls -l \"a b\"\n next";
  int num_cut = 0;
  for (std::size_t limit = 1; limit <= ids.size(); ++limit) {
    Json body = {{"input", "Hi"},
                 {"max_output_tokens", limit},
                 {"tools", {{{"type", "custom"}, {"name", "run"}}}},
                 {"chat_template_kwargs", {{"enable_thinking", false}}}};
    const Json whole = server.call("POST", "/v1/responses", body.dump()).json();
    body["stream"] = true;
    const ClientReply streamed = server.call("POST", "/v1/responses", body.dump());
    std::string deltas, done;
    constexpr std::string_view kData = "\ndata: ";
    for (std::size_t at = 0; (at = streamed.body.find(kData, at)) != std::string::npos;) {
      at += kData.size();
      const Json event = Json::parse(streamed.body.substr(at, streamed.body.find('\n', at) - at));
      if (event["type"] == "response.custom_tool_call_input.delta") deltas += event["delta"];
      if (event["type"] == "response.custom_tool_call_input.done") done = event["input"];
    }
    if (whole["output"].empty() || whole["output"][0]["type"] != "custom_tool_call") continue;
    const std::string input = whole["output"][0]["input"];
    EXPECT_TRUE(text.starts_with(input)) << limit << ": " << input;
    EXPECT_EQ(deltas, input) << limit;
    EXPECT_EQ(done, input) << limit;
    num_cut += !input.empty() && input != text;
  }
  EXPECT_GT(num_cut, 3);
}

}  // namespace
}  // namespace sluice
