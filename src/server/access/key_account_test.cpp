#include "server/access/key_account.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Clock = KeyAccount::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(KeyAccount, NoLimitsLetEverythingIn) {
  const auto account = std::make_shared<KeyAccount>("alice");
  std::shared_ptr<void> places[100];
  for (auto& place : places) EXPECT_FALSE(account->enter(place));
  account->charge(1'000'000'000);
  EXPECT_FALSE(account->enter(places[0]));
}

TEST(KeyAccount, APlaceIsFreeWhenItsRequestIsGone) {
  const auto account = std::make_shared<KeyAccount>("alice");
  account->set_limits({.max_concurrent_requests = 2});
  std::shared_ptr<void> first, second, third;
  EXPECT_FALSE(account->enter(first));
  EXPECT_FALSE(account->enter(second));
  const std::shared_ptr<void> held = first;
  const auto refusal = account->enter(third);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->fault.status, 429);
  EXPECT_EQ(refusal->fault.code, "rate_limit_exceeded");
  EXPECT_NE(refusal->fault.message.find("`alice` may run 2 requests"), std::string::npos);
  first.reset();
  EXPECT_TRUE(account->enter(third));  // a copy holds the place
  second.reset();
  EXPECT_FALSE(account->enter(third));
}

TEST(KeyAccount, TokensComeBackWithTime) {
  const Clock::time_point start = Clock::now();
  const auto account = std::make_shared<KeyAccount>("alice");
  account->set_limits({.max_tokens_per_minute = 600}, start);  // ten a second
  std::shared_ptr<void> place;
  EXPECT_FALSE(account->enter(place, start));
  account->charge(650, start);  // a debt of 50
  const auto refusal = account->enter(place, start);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->retry_after_s, 6);  // 51 tokens
  EXPECT_TRUE(account->enter(place, start + milliseconds(5050)));
  EXPECT_FALSE(account->enter(place, start + seconds(6)));
  // The bucket holds a minute's tokens at most.
  account->charge(599, start + seconds(3600));
  EXPECT_FALSE(account->enter(place, start + seconds(3600)));
  account->charge(1, start + seconds(3600));
  EXPECT_TRUE(account->enter(place, start + seconds(3600)));
}

TEST(KeyAccount, LimitsThatAreReadAgainKeepWhatWasUsed) {
  const Clock::time_point start = Clock::now();
  const auto account = std::make_shared<KeyAccount>("alice");
  account->set_limits({.max_tokens_per_minute = 600}, start);
  account->charge(600, start);
  account->set_limits({.max_tokens_per_minute = 600}, start);
  std::shared_ptr<void> place;
  EXPECT_TRUE(account->enter(place, start));
  account->set_limits({}, start);
  EXPECT_FALSE(account->enter(place, start));
}

}  // namespace
}  // namespace sluice
