#include "server/core/response_store.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::shared_ptr<const StoredResponse> record(const std::string& id, std::uint64_t key,
                                             std::size_t bytes = 10) {
  auto out = std::make_shared<StoredResponse>();
  out->id = id;
  out->key_id = key;
  out->response = std::string(bytes, 'x');
  return out;
}

TEST(ResponseStore, BelongsToItsKey) {
  ResponseStore store;
  EXPECT_TRUE(store.put(record("a", 1)));
  EXPECT_NE(store.find("a", 1), nullptr);
  EXPECT_EQ(store.find("a", 2), nullptr);
  EXPECT_FALSE(store.erase("a", 2));
  EXPECT_TRUE(store.erase("a", 1));
  EXPECT_FALSE(store.erase("a", 1));
  EXPECT_EQ(store.find("a", 1), nullptr);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, IsBoundInNumberByLastUse) {
  ResponseStore store({.max_bytes = 1 << 20, .max_responses = 3});
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(store.put(record(id, 1)));
  EXPECT_NE(store.find("a", 1), nullptr);
  EXPECT_TRUE(store.put(record("d", 1)));
  EXPECT_EQ(store.size(), 3u);
  EXPECT_EQ(store.find("b", 1), nullptr);
  EXPECT_NE(store.find("a", 1), nullptr);
}

TEST(ResponseStore, IsBoundInBytes) {
  ResponseStore store({.max_bytes = 4096, .max_responses = 1000});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(store.put(record(std::to_string(i), 1, 1000)));
    EXPECT_LE(store.bytes(), 4096u);
  }
  EXPECT_NE(store.find("99", 1), nullptr);
  EXPECT_FALSE(store.put(record("big", 1, 5000)));
  EXPECT_EQ(store.find("big", 1), nullptr);
  EXPECT_NE(store.find("99", 1), nullptr);
}

TEST(ResponseStore, ReplacesOneOfTheSameId) {
  ResponseStore store;
  EXPECT_TRUE(store.put(record("a", 1, 100)));
  EXPECT_TRUE(store.put(record("a", 1, 50)));
  EXPECT_EQ(store.size(), 1u);
  EXPECT_EQ(store.find("a", 1)->response.size(), 50u);
  EXPECT_EQ(store.bytes(), store.find("a", 1)->bytes());
}

}  // namespace
}  // namespace sluice
