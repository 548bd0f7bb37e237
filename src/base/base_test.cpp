#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <numeric>
#include <random>
#include <thread>

#include "base/channel.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/spin_latch.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

TEST(Error, KindsMessagesAndExitCodes) {
  try {
    require(1 + 1 == 3, "hidden_size is {}, allowed 1 to {}", 0, 65536);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadInput);
    EXPECT_EQ(e.message(), "hidden_size is 0, allowed 1 to 65536");
    EXPECT_EQ(exit_code(e.kind()), 2);
  }
  try {
    check(false, "broken");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("base_test.cpp"), std::string::npos);
    EXPECT_EQ(exit_code(e.kind()), 4);
  }
}

TEST(CheckedSize, OverflowThrows) {
  EXPECT_EQ((CheckedSize(3) * 5 + 1).get(), 16u);
  EXPECT_THROW(CheckedSize(1ull << 33) * (1ull << 33), Error);
  EXPECT_THROW(CheckedSize(~0ull) + 1, Error);
}

std::string code_of(std::string_view text, JsonLimits limits = {}) {
  Result<Json> parsed = parse_json(text, limits);
  return parsed.ok() ? "ok" : parsed.fault().code;
}

TEST(Json, AcceptsAndKeepsOrder) {
  Result<Json> parsed = parse_json(R"({"b": 1, "a": [true, null, -2.5, "x\u00e9"], "c": {}})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(dump_json(*parsed), "{\"b\":1,\"a\":[true,null,-2.5,\"x\u00e9\"],\"c\":{}}");
  EXPECT_EQ(dump_json(Json(std::string("a\xff"))), "\"a\xEF\xBF\xBD\"");
}

TEST(Json, ExactNumbersKeepDigitsAsPythonsJsonDoes) {
  const char* text =
      R"([18446744073709551615,18446744073709551616,-9223372036854775809,-0,1.0,1e400,-1e400,1E2])";
  const Result<Json> exact = parse_json(text, kRequestJson);
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(dump_json(*exact),
            "[18446744073709551615,18446744073709551616,-9223372036854775809,0,1.0,1e999,-1e999,"
            "100.0]");
  EXPECT_TRUE(is_big_integer((*exact)[1]));
  EXPECT_EQ(big_integer_digits((*exact)[2]), "-9223372036854775809");
  EXPECT_EQ(dump_json(*parse_json(dump_json(*exact), kRequestJson)), dump_json(*exact));
  EXPECT_TRUE((*parse_json("[18446744073709551616]"))[0].is_number_float());
  EXPECT_EQ(code_of("[" + std::string(4301, '9') + "]", kRequestJson), "invalid_json");
}

TEST(Json, TheLastOfEqualKeysStandsInThePlaceOfTheFirst) {
  const char* text = R"({"a": {"x": 1}, "b": 2, "a": [3], "b": {"y": {"z": 4, "z": 5}}})";
  EXPECT_EQ(code_of(text, kRequestJson), "duplicate_key");
  EXPECT_EQ(dump_json(*parse_json(text, kArgumentsJson)), R"({"a":[3],"b":{"y":{"z":5}}})");
}

// The grammar against the library's own reader, on random splices of tokens.
TEST(Json, TakesWhatTheLibraryTakes) {
  const std::string pieces[] = {
      "{",        "}",    "[",  "]",   ",",       ":",     "\"a\"", "\"",
      "1",        "-",    "0",  ".5",  "e3",      "E+",    "true",  "false",
      "null",     "nul",  " ",  "\n",  "\\u00e9", "\\ud8", "\\",    "\"\\ud83d\\ude00\"",
      "\xC3\xA9", "\xC3", "\t", "\x01"};
  std::mt19937 random(3);
  int taken = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = round % 2 == 0 ? "[" : "";
    const int count = 1 + static_cast<int>(random() % 7);
    for (int i = 0; i < count; ++i) text += pieces[random() % std::size(pieces)];
    if (round % 2 == 0) text += "]";
    const Json library = Json::parse(text, nullptr, false);
    const Result<Json> ours = parse_json(text, kArgumentsJson);
    ASSERT_EQ(ours.ok(), !library.is_discarded()) << text;
    if (!ours.ok()) continue;
    ++taken;
    ASSERT_EQ(dump_json(*ours), dump_json(library)) << text;
  }
  EXPECT_GT(taken, 2'000);
}

TEST(Json, RefusesByCode) {
  EXPECT_EQ(code_of(""), "invalid_json");
  EXPECT_EQ(code_of("{} x"), "invalid_json");
  EXPECT_EQ(code_of(std::string_view("{}\0x", 4)), "invalid_json");
  EXPECT_EQ(code_of(std::string_view("[1\0]", 4)), "invalid_json");
  EXPECT_EQ(code_of("[NaN]"), "invalid_json");
  EXPECT_EQ(code_of("[Infinity]"), "invalid_json");
  EXPECT_EQ(code_of("[1e999]"), "invalid_json");
  EXPECT_EQ(code_of("\xEF\xBB\xBF{}"), "invalid_json");
  EXPECT_EQ(code_of(R"({"a":1,"a":2})"), "duplicate_key");
  EXPECT_EQ(code_of(R"({"a":{"a":1},"b":{"a":2}})"), "ok");
  EXPECT_EQ(code_of(std::string(100'000, '[')), "json_too_deep");
  EXPECT_EQ(code_of("[1,2,3]", {.max_elements = 3}), "json_too_large");
  EXPECT_EQ(code_of(std::string(64, '[') + std::string(64, ']')), "ok");
  EXPECT_EQ(code_of(std::string(65, '[') + std::string(65, ']')), "json_too_deep");
}

TEST(Channel, OrderBoundAndClose) {
  Channel<int> channel(2);
  EXPECT_TRUE(channel.try_push(1));
  EXPECT_TRUE(channel.try_push(2));
  EXPECT_FALSE(channel.try_push(3));
  channel.close();
  EXPECT_EQ(channel.pop(), 1);
  EXPECT_EQ(channel.pop(), 2);
  EXPECT_EQ(channel.pop(), std::nullopt);
  EXPECT_FALSE(channel.try_push(4));
}

TEST(Channel, ManyProducersLoseNothing) {
  Channel<int> channel(64);
  std::vector<std::thread> producers;
  for (int p = 0; p < 4; ++p)
    producers.emplace_back([&] {
      for (int i = 1; i <= 1000; ++i)
        while (!channel.try_push(int{i})) std::this_thread::yield();
    });
  long sum = 0;
  for (int i = 0; i < 4000; ++i) sum += *channel.pop();
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(sum, 4 * 500'500);
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int workers : {1, 2, 3, 7}) {
    ThreadPool pool(workers);
    for (std::int64_t count : {0, 1, 2, 6, 7, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) seen[i]++;
      });
      for (auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

// One worker blocks until the others have done all other work, its own share but for one piece
// included.
TEST(ThreadPool, WorkOfASlowWorkerIsTakenOver) {
  ThreadPool pool(3);
  constexpr std::int64_t kCount = 3 * 1600;
  std::atomic<std::int64_t> done{0}, held{0};
  pool.parallel_for(kCount, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_LE(end - begin, 100);
    if (begin == 0) {
      held = end;
      while (done < kCount - end) std::this_thread::yield();
    }
    done += end - begin;
  });
  EXPECT_EQ(done, kCount);
  EXPECT_EQ(held, 100);
}

TEST(ThreadPool, ManyShortCallsAndExceptions) {
  ThreadPool pool(3);
  std::atomic<long> total{0};
  for (int i = 0; i < 20'000; ++i)
    pool.parallel_for(3, [&](std::int64_t b, std::int64_t e) { total += e - b; });
  EXPECT_EQ(total, 60'000);
  EXPECT_THROW(
      pool.parallel_for(3, [](std::int64_t b, std::int64_t) { check(b != 2, "third part"); }),
      Error);
  pool.parallel_for(3, [&](std::int64_t b, std::int64_t e) { total += e - b; });
  EXPECT_EQ(total, 60'003);
}

TEST(SpinLatch, ThreadsSeeWhatOthersDidBeforeTheyArrived) {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 2'000; ++round) {
    SpinLatch filled(kThreads), summed(kThreads);
    int own[kThreads] = {}, sum[kThreads] = {};
    pool.run(kThreads, [&](int part) {
      SpinLatch::Arrival first(filled), second(summed);
      own[part] = part + round;
      first.arrive();
      filled.wait();
      for (const int value : own) sum[part] += value;
      second.arrive();
      summed.wait();
      EXPECT_EQ(sum[0] + sum[1] + sum[2], kThreads * (0 + 1 + 2 + 3 * round));
    });
  }
}

TEST(SpinLatch, AnExceptionLeavesNobodyWaiting) {
  ThreadPool pool(3);
  for (int late = 0; late < 3; ++late) {
    SpinLatch first(3), second(3);
    EXPECT_THROW(pool.run(3,
                          [&](int part) {
                            SpinLatch::Arrival one(first), two(second);
                            if (part == late)
                              std::this_thread::sleep_for(std::chrono::milliseconds(
                                  2));  // by then the others sleep in the kernel
                            check(part != late, "thread {}", part);
                            one.arrive();
                            first.wait();
                            two.arrive();
                            second.wait();
                          }),
                 Error);
  }
}

TEST(Hash, DependsOnEveryByteAndLength) {
  EXPECT_NE(hash_bytes("abcdefgh"), hash_bytes("abcdefgi"));
  EXPECT_NE(hash_bytes("abc"), hash_bytes(std::string_view("abc\0", 4)));
  EXPECT_NE(hash_bytes("abc", 1), hash_bytes("abc", 2));
}

}  // namespace
}  // namespace sluice
