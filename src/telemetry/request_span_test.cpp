#include "telemetry/request_span.h"

#include <gtest/gtest.h>

#include <map>

#include "base/json.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, IsReadFromItsHeader) {
  const auto context = parse_traceparent(kParent);
  ASSERT_TRUE(context);
  EXPECT_EQ(trace_id_text(*context), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span_id_text(context->parent), "b7ad6b7169203331");
  EXPECT_TRUE(context->is_sampled);
  EXPECT_FALSE(
      parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->is_sampled);
  EXPECT_TRUE(parse_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
}

TEST(TraceContext, OfAFaultyHeaderIsNone) {
  const std::string good = kParent;
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_traceparent(good.substr(0, size)));
  for (const char* bad : {
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
           "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
       })
    EXPECT_FALSE(parse_traceparent(bad)) << bad;
}

TEST(TraceContext, NewTracesDiffer) {
  EXPECT_NE(trace_id_text(new_trace()), trace_id_text(new_trace()));
  EXPECT_NE(new_span_id(), new_span_id());
  EXPECT_TRUE(new_trace().is_sampled);
}

RequestSpan example() {
  RequestSpan request;
  request.context = *parse_traceparent(kParent);
  request.trace_state = "a=b";
  request.id = 0x1234;
  request.request_id = "chatcmpl-1";
  request.path = "/v1/chat/completions";
  request.model = "tiny";
  request.arrival = std::chrono::steady_clock::now();
  request.submitted = request.arrival + 1ms;
  request.planned = request.arrival + 3ms;
  request.first_token = request.arrival + 10ms;
  request.last_token = request.arrival + 30ms;
  request.end = request.arrival + 31ms;
  request.finish = "stop";
  request.prompt_tokens = 7;
  request.completion_tokens = 5;
  return request;
}

std::map<std::string, Json> attributes_of(const Json& span) {
  std::map<std::string, Json> out;
  for (const Json& one : span["attributes"]) out[one["key"]] = one["value"];
  return out;
}

Json spans_of(const RequestSpan& request) {
  return Json::parse(
      otlp_json(std::span(&request, 1), "mine"))["resourceSpans"][0]["scopeSpans"][0]["spans"];
}

TEST(RequestSpan, HasItsPhasesInside) {
  const RequestSpan request = example();
  const Json spans = spans_of(request);
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[0]["name"], "llm_request");
  EXPECT_EQ(spans[0]["kind"], 2);
  EXPECT_EQ(spans[0]["spanId"], "0000000000001234");
  EXPECT_EQ(spans[0]["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(spans[0]["traceState"], "a=b");
  EXPECT_FALSE(spans[0].contains("status"));
  const auto attributes = attributes_of(spans[0]);
  EXPECT_EQ(attributes.at("gen_ai.usage.prompt_tokens"), (Json{{"intValue", "7"}}));
  EXPECT_EQ(attributes.at("gen_ai.operation.name"), (Json{{"stringValue", "chat"}}));
  EXPECT_NEAR(attributes.at("gen_ai.latency.time_in_queue")["doubleValue"].get<double>(), 0.002,
              1e-9);
  EXPECT_NEAR(attributes.at("gen_ai.latency.time_in_model_decode")["doubleValue"].get<double>(),
              0.020, 1e-9);
  EXPECT_FALSE(attributes.contains("gen_ai.request.max_tokens"));
  // The phases follow each other without a gap.
  std::string before = spans[0]["startTimeUnixNano"];
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["parentSpanId"], spans[0]["spanId"]);
    EXPECT_EQ(spans[i]["traceId"], spans[0]["traceId"]);
    EXPECT_EQ(spans[i]["startTimeUnixNano"], before);
    before = spans[i]["endTimeUnixNano"];
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_NEAR(std::stod(spans[0]["startTimeUnixNano"].get<std::string>()) * 1e-9,
              std::chrono::duration<double>(now).count(), 5);
}

TEST(RequestSpan, ThatEndedEarlyLacksTheLaterPhases) {
  RequestSpan request = example();
  request.context = new_trace();
  request.trace_state.clear();
  request.first_token = request.last_token = {};
  request.finish = "error";
  const Json spans = spans_of(request);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_FALSE(spans[0].contains("traceState"));
  EXPECT_EQ(spans[0]["status"]["code"], 2);
  EXPECT_FALSE(attributes_of(spans[0]).contains("gen_ai.latency.time_to_first_token"));
}

}  // namespace
}  // namespace sluice
