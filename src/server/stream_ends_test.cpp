// How streams end, and what a server says in each of its phases: errors, disconnects, slow
// readers, pings.
#include <sys/socket.h>

#include "server/page/page.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

TEST(Faults, OfTheEngineReachTheClient) {
  TestServer server;
  server.engine->set_failure(
      3, Fault{500, "numerics_error", "", "The model's logits were not finite."});
  ClientReply reply = server.chat("");
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.error("code"), "numerics_error");
  const auto payloads = sse_payloads(server.chat(R"(, "stream": true)").body);
  ASSERT_FALSE(payloads.empty());
  EXPECT_EQ(Json::parse(payloads.back())["error"]["code"], "numerics_error");
  server.engine->set_failure(
      3, Fault{504, "timeout", "timeout", "The request took longer than its timeout."});
  EXPECT_EQ(server.chat(R"(, "timeout": 0.5)").status, 504);
  EXPECT_FLOAT_EQ(server.engine->last_request().timeout_s, 0.5);
  server.engine->set_failure(-1, Fault{});
  server.engine->max_queued = 0;
  reply = server.chat(R"(, "stream": true)");
  EXPECT_EQ(reply.status, 429);
  EXPECT_GE(std::stoi(reply.headers.at("retry-after")), 1);
  server.engine->max_queued = 2;
  EXPECT_EQ(server.call("POST", "/generate", R"({"text": ["a", "b", "c", "d"]})").status, 429);
  server.engine->max_queued = 1000;
  server.expect_healthy();
}

// The client leaves: while queued (stalled engine), while decoding, streaming or not.
TEST(Disconnect, EndsTheRequestWithinTwoSteps) {
  TestServer server;
  server.engine->step_us = 20000;
  for (const bool stream : {true, false}) {
    for (const bool reset : {true, false}) {
      Client client(server.port());
      client.send(request_text(
          "POST", "/generate",
          fmt::format(
              R"({{"text": "a", "stream": {}, "sampling_params": {{"max_new_tokens": 3000, )"
              R"("ignore_eos": true}}}})",
              stream)));
      ASSERT_TRUE(eventually([&] { return server.engine->num_open() == 1; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const std::uint64_t steps = server.engine->steps();
      reset ? client.reset() : client.close();
      ASSERT_TRUE(eventually([&] { return server.engine->num_open() == 0; }));
      EXPECT_LE(server.engine->steps() - steps, 2u) << stream << reset;
    }
  }
  EXPECT_EQ(server.engine->num_aborted(), 4u);
  server.engine->step_us = 200;
  server.expect_healthy();
}

TEST(Disconnect, TwoHundredAtOnceLeaveNothing) {
  TestServer server;
  // So that none ends by itself, and a sanitizer's server has time left for the next request
  // between the tokens of 200.
  server.engine->step_us = kTimedBuild ? 20'000 : 500'000;
  {
    std::list<Client> clients;
    for (int i = 0; i < 200; ++i)
      clients.emplace_back(server.port())
          .send(request_text(
              "POST", i % 2 ? "/generate" : kChat,
              i % 2 ? R"({"text": "a", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": )"
                      R"(true}})"
                    : R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3000, )"
                      R"("ignore_eos": true, "stream": true})"));
    ASSERT_TRUE(eventually([&] { return server.engine->num_open() == 200; }, 55000));
  }
  EXPECT_TRUE(eventually([&] { return server.engine->num_open() == 0; }));
  EXPECT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
  server.engine->step_us = 200;
  server.expect_healthy();
}

TEST(SlowReader, IsCutAndNobodyElseNotices) {
  TestServer server;
  server.engine->step_us = 50;
  server.engine->context = 1 << 20;
  Client slow(server.port());
  const int small = 4096;
  setsockopt(slow.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  slow.send(request_text(
      "POST", kChat,
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 900000, "ignore_eos": )"
      R"(true, "stream": true, "logprobs": true, "top_logprobs": 20})"));
  ASSERT_TRUE(eventually([&] { return server.engine->num_open() == 1; }));
  EXPECT_EQ(server.chat("").status, 200);
  EXPECT_TRUE(eventually([&] { return server.engine->num_open() == 0; }, 20000));
  EXPECT_TRUE(slow.closed_by_server());
  server.expect_healthy();
}

TEST(Stream, SilenceIsFilledWithPings) {
  TestServer server;
  server.engine->stalled = true;
  Client client(server.port());
  client.send(request_text("POST", kChat,
                           R"({"messages": [{"role": "user", "content": "a"}], "stream": true})"));
  std::string seen;
  EXPECT_TRUE(eventually(
      [&] { return (seen += client.read_some()).find(": ping\n\n") != std::string::npos; }));
  server.engine->stalled = false;
  EXPECT_TRUE(
      eventually([&] { return (seen += client.read_some()).find("[DONE]") != std::string::npos; }));
}

TEST(Phases, LoadingServingStalledFailedAndDraining) {
  TestServerConfig config;
  config.attach = false;
  TestServer server(config);
  server.state->set_progress("loading weights", 0.4);
  for (const Route& route : route_table()) {
    if (route.plain == handle_page || route.text == handle_chats || route.text == handle_chat ||
        route.path == "/metrics" || route.path == "/openapi.json" || route.path == "/version" ||
        route.path == "/api/version" || route.path == "/abort_request")
      continue;
    const ClientReply reply = server.call(
        std::string(route.methods.substr(0, route.methods.find(' '))),
        route.path.ends_with('*') ? std::string(route.path) + "x" : std::string(route.path),
        route.needs_body ? "{}" : "");
    EXPECT_EQ(reply.status, 503) << route.path;
    EXPECT_NE(reply.error("message").find("loading weights, 40 %"), std::string::npos)
        << route.path;
    EXPECT_FALSE(reply.headers.at("retry-after").empty());
  }
  server.attach();
  EXPECT_EQ(server.call("GET", "/ready").status, 200);
  EXPECT_EQ(server.call("GET", "/health_generate").status, 200);

  server.engine->stalled = true;
  Client waiting(server.port());
  waiting.send(request_text("POST", "/generate", R"({"text": "a"})"));
  ASSERT_TRUE(eventually([&] { return server.engine->num_open() == 1; }));
  EXPECT_EQ(server.call("GET", "/ready").error("code"), "engine_stalled");
  EXPECT_EQ(server.call("GET", "/health").status, 200);
  server.engine->stalled = false;
  EXPECT_EQ(waiting.read_reply().status, 200);
  EXPECT_EQ(server.call("GET", "/ready").status, 200);

  server.engine->dead = true;
  EXPECT_EQ(server.call("GET", "/health").status, 503);
  EXPECT_EQ(server.chat("").error("code"), "engine_failed");
  server.engine->dead = false;

  server.state->begin_drain();
  EXPECT_EQ(server.chat("").error("code"), "draining");
  EXPECT_EQ(server.call("GET", "/ready").status, 503);
  EXPECT_EQ(server.call("GET", "/health").status, 200);
}

TEST(Info, RoutesAnswerWhatTheModelIs) {
  TestServer server;
  const Json models = server.call("GET", "/v1/models").json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], server.engine->context.load());
  EXPECT_EQ(server.call("GET", "/v1/models/org%2Fother").json()["id"], "org/other");
  EXPECT_EQ(server.call("GET", "/v1/models/none").error("code"), "model_not_found");
  EXPECT_EQ(server.call("GET", "/get_model_info").json()["is_generation"], true);
  EXPECT_EQ(server.call("GET", "/get_server_info").json()["internal_states"].size(), 1u);
  const Json tokenizer = server.call("GET", "/tokenizer_info").json();
  EXPECT_EQ(tokenizer["model_max_length"], server.engine->context.load());
  EXPECT_TRUE(tokenizer.contains("eos_token") && tokenizer.contains("chat_template")) << tokenizer;
  EXPECT_GT(tokenizer["vocab_size"].get<int>(), 0);
  EXPECT_EQ(server.call("POST", "/flush_cache").status, 200);
  EXPECT_EQ(server.chat("").status, 200);
  const std::string metrics = server.call("GET", "/metrics").body;
  for (const char* name :
       {"sglang:num_running_reqs{", "sglang:time_to_first_token_seconds_bucket{",
        "vllm:num_requests_running{", "vllm:request_success_total{", "sglang:num_retracted_reqs{",
        "sglang:new_token_ratio{", "sglang:is_cuda_graph{", "vllm:request_num_preemptions_bucket{",
        "vllm:e2e_request_latency_seconds_count{", "process_resident_memory_bytes"})
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  EXPECT_NE(
      metrics.find(
          R"(http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 1)"),
      std::string::npos)
      << metrics;
}

}  // namespace
}  // namespace sluice
