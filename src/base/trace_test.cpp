#include "base/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/json.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override { std::filesystem::remove(path_); }

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }
  Json events() const { return parse_json_or_throw(text(), "trace"); }
  Json named(std::string_view name) const {
    for (const Json& event : events())
      if (event["name"] == name) return event;
    return nullptr;
  }

  const std::string path_ = testing::TempDir() + "trace_" + std::to_string(getpid()) + ".json";
  const Trace::Time t0_ = Trace::Clock::now();
};

TEST_F(TraceFile, SpansHaveTheFieldsOfTheFormat) {
  {
    Trace trace(path_);
    const auto begin = Trace::Clock::now();
    trace.span(TraceLane::kEngine, "a \"step\"", begin, begin + microseconds(1500),
               R"({"step":7})");
    trace.instant(TraceLane::kDevice, "arrival", begin);
  }
  const Json span = named("a \"step\"");
  EXPECT_EQ(span["ph"], "X");
  EXPECT_EQ(span["dur"], 1500.0);
  EXPECT_GE(span["ts"].get<double>(), 0);
  EXPECT_EQ(span["args"]["step"], 7);
  EXPECT_EQ(named("arrival")["ph"], "i");
  EXPECT_NE(named("arrival")["tid"], span["tid"]);
  // Every lane in use has a name.
  std::map<int, std::string> names;
  for (const Json& event : events())
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  EXPECT_EQ(names[span["tid"]], "engine");
  EXPECT_EQ(names[named("arrival")["tid"]], "device");
}

TEST_F(TraceFile, WithoutItsEndTheFileStillHoldsWholeEvents) {
  Trace trace(path_);
  trace.span(TraceLane::kEngine, "first", t0_, t0_);
  trace.flush();
  const std::string left = text();
  EXPECT_FALSE(left.ends_with("]\n"));
  const Json events = parse_json_or_throw(left + "]", "trace");
  EXPECT_EQ(events.back()["name"], "first");
}

TEST_F(TraceFile, MemoryIsBoundedByWritingPieces) {
  Trace trace(path_);
  const std::string args = R"({"text":")" + std::string(1000, 'x') + R"("})";
  for (int i = 0; i < 1000; ++i) trace.span(TraceLane::kEngine, "s", t0_, t0_, args);
  // A megabyte was written, and at most one piece of 64 KiB is held back.
  EXPECT_GT(std::filesystem::file_size(path_), 900'000u);
}

TEST_F(TraceFile, PhasesOfARequestLieInsideItAndOverlappingRequestsOnOtherLanes) {
  {
    Trace trace(path_);
    const auto t = Trace::Clock::now();
    const auto at = [&](int us) { return t + microseconds(us); };
    trace.request({"one", at(0), at(10), at(20), at(50), at(100), R"({"finish":"stop"})"});
    // the client left while the request waited
    trace.request({"two", at(30), at(40), {}, {}, at(120), ""});
    trace.request({"three", at(100), at(100), at(101), at(102), at(130), ""});
  }
  std::map<std::string, Json> found;
  std::map<int, std::vector<std::string>> by_lane;
  for (const Json& event : events()) {
    if (event["pid"] != 2 || event["ph"] != "X") continue;
    by_lane[event["tid"]].push_back(event["name"]);
  }
  EXPECT_EQ(by_lane[1], (std::vector<std::string>{"one", "read", "queue", "prefill", "decode",
                                                  "three", "queue", "prefill", "decode"}));
  EXPECT_EQ(by_lane[2], (std::vector<std::string>{"two", "read", "queue"}));
  EXPECT_EQ(named("two")["dur"], 90.0);
}

TEST_F(TraceFile, EachThreadHasItsOwnLane) {
  {
    Trace trace(path_);
    for (int i = 0; i < 2; ++i)
      std::thread([&] { TraceSpan span(&trace, TraceLane::kText, "tokenize"); }).join();
    std::thread([&] { TraceSpan span(&trace, TraceLane::kNetwork, "detokenize"); }).join();
  }
  std::map<std::string, int> lanes;
  for (const Json& event : events())
    if (event["name"] == "thread_name") lanes[event["args"]["name"]] = event["tid"];
  // A new thread may get the id of a thread that has ended.
  EXPECT_TRUE(lanes.contains("text 1"));
  EXPECT_TRUE(lanes.contains("network 1"));
  EXPECT_EQ(named("detokenize")["tid"], lanes["network 1"]);
}

TEST(Trace, APathThatCannotBeWrittenIsAnError) {
  try {
    Trace trace("/nowhere/trace.json");
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(error.message().find("/nowhere/trace.json"), std::string::npos);
  }
}

TEST(Trace, AFullDiskEndsTheTraceAndNothingElse) {
  Trace trace("/dev/full");
  for (int i = 0; i < 3; ++i) {
    trace.span(TraceLane::kEngine, "s", Trace::Clock::now(), Trace::Clock::now());
    trace.flush();
  }
}

}  // namespace
}  // namespace sluice
