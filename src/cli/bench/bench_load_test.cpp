#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>

#include "base/testing/source_dir.h"
#include "cli/arguments.h"
#include "cli/bench/bench_dataset.h"
#include "cli/bench/http_client.h"
#include "cli/files.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTiny = source_dir() + "/models/sluice-tiny";

TEST(HttpUrl, IsTakenApart) {
  const HttpUrl plain = parse_url("http://localhost:30000/");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, "30000");
  EXPECT_EQ(plain.path, "");
  EXPECT_EQ(parse_url("http://host").port, "80");
  EXPECT_EQ(parse_url("http://host:1/a/b/").path, "/a/b");
  EXPECT_EQ(parse_url("http://[::1]:9/x").host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9/x").port, "9");
  for (const char* bad :
       {"", "host:1", "https://host", "http://", "http://:1", "http://h:", "http://h:port",
        "http://h:123456", "http://h:99999", "http://h:0", "http://[::1"})
    EXPECT_THROW(parse_url(bad), Error) << bad;
}

TEST(SseReader, AnyCutGivesTheSameEvents) {
  const std::string stream =
      ": hello\n\ndata: {\"a\":1}\n\ndata:two\r\ndata: lines\r\n\r\nevent: x\ndata: [DONE]\n\n";
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    std::vector<std::string> events;
    SseReader reader([&](std::string_view data) { events.emplace_back(data); });
    for (std::size_t at = 0; at < stream.size(); at += cut)
      reader.push(std::string_view(stream).substr(at, cut));
    EXPECT_THAT(events, ElementsAre("{\"a\":1}", "two\nlines", "[DONE]")) << cut;
  }
}

TEST(Backends, RequestsAreSpelt) {
  LoadPrompt prompt{.text = "hi", .ids = {1, 2}, .prompt_len = 2, .output_len = 9};
  LoadStyle style;
  style.model = "m";
  const auto spelt = [&](const char* backend) {
    return parse_json_or_throw(request_body(find_backend(backend).protocol, prompt, style), "body");
  };
  Json json = spelt("sglang");
  EXPECT_EQ(json["text"], "hi");
  EXPECT_EQ(json["sampling_params"]["max_new_tokens"], 9);
  EXPECT_EQ(json["sampling_params"]["ignore_eos"], true);
  json = spelt("vllm");
  EXPECT_EQ(json["prompt"], "hi");
  EXPECT_EQ(json["max_tokens"], 9);
  EXPECT_EQ(json["stream_options"]["include_usage"], true);
  json = spelt("sglang-oai-chat");
  EXPECT_EQ(json["messages"][0]["content"], "hi");
  style.as_ids = true;
  style.stream = false;
  style.ignore_eos = false;
  style.extra = {{"temperature", 0.5}, {"more", 1}};
  json = spelt("sluice-oai");
  EXPECT_EQ(json["prompt"], Json::array({1, 2}));
  EXPECT_EQ(json["stream"], false);
  EXPECT_FALSE(json.contains("stream_options"));
  EXPECT_EQ(json["ignore_eos"], false);
  EXPECT_EQ(json["temperature"], 0.5);
  EXPECT_EQ(json["more"], 1);
  EXPECT_EQ(spelt("sluice")["input_ids"], Json::array({1, 2}));
  EXPECT_EQ(find_backend("vllm-chat").default_port, 8000);
  EXPECT_THROW(find_backend("nobody"), UsageError);
}

TEST(AnswerReader, NativeEventsCountTheirTokens) {
  AnswerReader reader(LoadProtocol::kGenerate, true,
                      {.text = "", .ids = {}, .prompt_len = 3, .output_len = 8});
  reader.event(R"({"text":"a","meta_info":{"completion_tokens":1}})", 0.5);
  reader.event(R"({"text":"abc","meta_info":{"completion_tokens":3}})", 0.9);
  reader.event(R"({"text":"abc","meta_info":{"completion_tokens":3}})", 1.5);
  reader.event("[DONE]", 1.6);
  reader.end(1);
  const RequestRecord& r = reader.record();
  EXPECT_TRUE(r.success) << r.error;
  EXPECT_EQ(r.text, "abc");
  EXPECT_EQ(r.output_len, 3);
  EXPECT_EQ(r.prompt_len, 3);
  EXPECT_DOUBLE_EQ(r.ttft_s, 0.5);
  EXPECT_DOUBLE_EQ(r.latency_s, 0.9);
  EXPECT_THAT(r.itl_s,
              ElementsAre(testing::DoubleNear(0.2, 1e-12), testing::DoubleNear(0.2, 1e-12)));
}

TEST(AnswerReader, OpenAiEventsCountByUsage) {
  AnswerReader chat(LoadProtocol::kChat, true,
                    {.text = "", .ids = {}, .prompt_len = 3, .output_len = 8});
  chat.event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 0.1);
  chat.event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})", 0.5);
  chat.event(R"({"choices":[{"delta":{"content":"a"}}],"usage":null})", 0.75);
  chat.event(R"({"choices":[],"usage":{"completion_tokens":4}})", 0.8);
  chat.event("[DONE]", 0.8);
  chat.end(1);
  EXPECT_TRUE(chat.record().success);
  EXPECT_EQ(chat.record().text, "hma");
  EXPECT_EQ(chat.record().output_len, 4);
  EXPECT_DOUBLE_EQ(chat.record().ttft_s, 0.5);
  EXPECT_DOUBLE_EQ(chat.record().latency_s, 0.75);

  AnswerReader text(LoadProtocol::kCompletions, true,
                    {.text = "", .ids = {}, .prompt_len = 3, .output_len = 8});
  text.event(R"({"choices":[{"text":"a"}]})", 0.25);
  text.event("[DONE]", 0.3);
  text.end(1);
  EXPECT_EQ(text.record().output_len, 8);  // no usage: what was asked for

  AnswerReader whole(LoadProtocol::kChat, false,
                     {.text = "", .ids = {}, .prompt_len = 3, .output_len = 8});
  whole.body(R"({"choices":[{"message":{"content":"abc"}}],"usage":{"completion_tokens":2}})", 2);
  whole.end(2);
  EXPECT_EQ(whole.record().output_len, 2);
  EXPECT_DOUBLE_EQ(whole.record().ttft_s, 2);
  EXPECT_TRUE(whole.record().itl_s.empty());
}

TEST(AnswerReader, FailuresAreTold) {
  const auto error_of = [](std::initializer_list<const char*> events) {
    AnswerReader reader(LoadProtocol::kCompletions, true,
                        {.text = "", .ids = {}, .prompt_len = 1, .output_len = 1});
    for (const char* event : events) reader.event(event, 1);
    reader.end(1);
    EXPECT_EQ(reader.record().success, reader.record().error.empty());
    return reader.record().error;
  };
  EXPECT_EQ(error_of({R"({"choices":[{"text":"a"}]})", "[DONE]"}), "");
  EXPECT_THAT(error_of({R"({"error":{"message":"too long"}})", "[DONE]"}), HasSubstr("too long"));
  EXPECT_THAT(error_of({R"({"choices":[{"text":"a"}]})"}), HasSubstr("[DONE]"));
  EXPECT_THAT(error_of({"nonsense", "[DONE]"}), HasSubstr("JSON"));
  EXPECT_EQ(error_of({"[DONE]"}), "");  // tokens may be no text
  EXPECT_EQ(error_of({"[1,2]", R"({"choices":3})", R"({"choices":[7]})", "[DONE]"}), "");
}

TEST(Dataset, RandomPromptsHaveTheirLengths) {
  const auto tokenizer = Tokenizer::load(kTiny);
  DatasetSettings s;
  s.num_prompts = 50;
  s.input_len = 40;
  s.output_len = 10;
  s.range_ratio = 0.5;
  const std::vector<LoadPrompt> prompts = make_dataset(s, tokenizer.get());
  ASSERT_EQ(prompts.size(), 50u);
  for (const LoadPrompt& p : prompts) {
    EXPECT_GE(p.prompt_len, 15);  // text that merges differently may miss by a few
    EXPECT_LE(p.prompt_len, 45);
    EXPECT_EQ(tokenizer->encode(p.text, {.add_special_tokens = false, .parse_special = true}),
              p.ids);
    EXPECT_GE(p.output_len, 5);
    EXPECT_LE(p.output_len, 10);
  }
  EXPECT_EQ(make_dataset(s, tokenizer.get())[7].text, prompts[7].text);
  s.seed = 2;
  EXPECT_NE(make_dataset(s, tokenizer.get())[7].text, prompts[7].text);
  s.range_ratio = 1;
  for (const LoadPrompt& p : make_dataset(s, nullptr)) EXPECT_EQ(p.ids.size(), 40u);
}

TEST(Dataset, WhatCannotBeMadeIsRefusedAtOnce) {
  DatasetSettings s;
  s.name = "randm";
  EXPECT_THROW(make_dataset(s, nullptr), Error);
  s.name = "random";
  s.num_prompts = 10'000'000;
  s.input_len = 1 << 24;
  EXPECT_THROW(make_dataset(s, nullptr), Error);
  EXPECT_THROW(require_room_for_prompts(std::int64_t{1} << 40, std::int64_t{1} << 40), Error);
  EXPECT_NO_THROW(require_room_for_prompts(1000, 1024));
}

TEST(Dataset, GroupsShareAPrefix) {
  const auto tokenizer = Tokenizer::load(kTiny);
  DatasetSettings s;
  s.name = "generated-shared-prefix";
  s.num_groups = 2;
  s.prompts_per_group = 3;
  s.system_prompt_len = 30;
  s.question_len = 8;
  s.group_output_len = 5;
  const std::vector<LoadPrompt> prompts = make_dataset(s, tokenizer.get());
  ASSERT_EQ(prompts.size(), 6u);
  std::map<std::string, int> systems;
  for (const LoadPrompt& p : prompts) ++systems[p.text.substr(0, p.text.find("\n\n"))];
  EXPECT_EQ(systems.size(), 2u);
  EXPECT_EQ(prompts[0].output_len, 5);
  EXPECT_THROW(make_dataset(s, nullptr), Error);
}

TEST(Dataset, ConversationsAreRead) {
  const auto tokenizer = Tokenizer::load(kTiny);
  const std::string path = testing::TempDir() + "/conversations.json";
  write_text_file(path,
                  R"([{"conversations":[{"from":"human","value":"What is the capital of France?"},
    {"from":"gpt","value":"The capital of France is Paris."}]},
    {"conversations":[{"value":"alone"}]}, 7, {}])");
  DatasetSettings s;
  s.name = "sharegpt";
  s.path = path;
  std::vector<LoadPrompt> prompts = make_dataset(s, tokenizer.get());
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].text, "What is the capital of France?");
  EXPECT_EQ(prompts[0].output_len,
            static_cast<int>(tokenizer
                                 ->encode("The capital of France is Paris.",
                                          {.add_special_tokens = false, .parse_special = false})
                                 .size()));
  s.sharegpt_output_len = 77;
  EXPECT_EQ(make_dataset(s, tokenizer.get())[0].output_len, 77);
  s.sharegpt_context_len = 50;
  EXPECT_THROW(make_dataset(s, tokenizer.get()), Error);
  for (const char* wrong : {"", "/"}) {
    s.path = wrong;
    EXPECT_THROW(make_dataset(s, tokenizer.get()), Error);
  }
  std::remove(path.c_str());
}

TEST(Arrivals, HaveTheirRateAndShape) {
  const std::vector<double> all_at_once =
      arrival_gaps(5, std::numeric_limits<double>::infinity(), 1, 1);
  EXPECT_EQ(all_at_once, std::vector<double>(5, 0));
  for (double burstiness : {1.0, 100.0}) {
    const std::vector<double> gaps = arrival_gaps(20001, 4, burstiness, 1);
    EXPECT_EQ(gaps[0], 0);
    const double mean = std::accumulate(gaps.begin(), gaps.end(), 0.0) / 20000;
    double squares = 0;
    for (std::size_t i = 1; i < gaps.size(); ++i) squares += (gaps[i] - mean) * (gaps[i] - mean);
    // A Gamma distribution of shape k has a relative deviation of 1 / sqrt(k); 20,000 draws know it
    // to some percent.
    EXPECT_NEAR(mean, 0.25, 0.01);
    EXPECT_NEAR(std::sqrt(squares / 20000) / mean, 1 / std::sqrt(burstiness),
                0.05 / std::sqrt(burstiness));
  }
}

}  // namespace
}  // namespace sluice
