#include "server/access/key_file.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr const char* kDigestOfAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string fault(std::string_view text) {
  try {
    parse_key_file(text, "keys.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  ADD_FAILURE() << "read: " << text;
  return "";
}

TEST(KeyFile, YamlAndJsonAreRead) {
  const std::vector<ApiKey> keys = parse_key_file(
      "keys:\n"
      "- name: alice\n"
      "  key: abc\n"
      "  max_concurrent_requests: 2\n"
      "  max_tokens_per_minute: 20000\n"
      "- {name: operator.1, key_sha256: " +
          std::string(64, 'a') + ", role: admin}\n",
      "keys.yaml");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].name, "alice");
  EXPECT_EQ(keys[0].digest, kDigestOfAbc);
  EXPECT_FALSE(keys[0].is_admin);
  EXPECT_EQ(keys[0].limits.max_concurrent_requests, 2);
  EXPECT_EQ(keys[0].limits.max_tokens_per_minute, 20000);
  EXPECT_TRUE(keys[1].is_admin);
  EXPECT_EQ(keys[1].limits.max_tokens_per_minute, 0);
  EXPECT_EQ(parse_key_file(R"({"keys": [{"name": "a", "key": "abc"}]})", "k")[0].digest,
            kDigestOfAbc);
}

TEST(KeyFile, FaultsNameTheEntryAndShowNoKey) {
  const auto one = [](const std::string& fields) {
    return fault("keys: [{name: alice, key: canary-key" + fields + "}]");
  };
  EXPECT_EQ(one(", max_concurent_requests: 1"),
            "keys.yaml, key 1 (`alice`): unknown field `max_concurent_requests`, did you mean "
            "`max_concurrent_requests`?; known: name, key, key_sha256, role, "
            "max_concurrent_requests, max_tokens_per_minute");
  EXPECT_EQ(one(", role: root"),
            "keys.yaml, key 1 (`alice`): `role` is `root`; allowed: user, admin");
  EXPECT_EQ(one(", max_concurrent_requests: 0"),
            "keys.yaml, key 1 (`alice`): `max_concurrent_requests` is 0; allowed: 1 to 1000000, or "
            "nothing for no limit");
  EXPECT_NE(one(", max_tokens_per_minute: many").find("`max_tokens_per_minute` is \"many\""),
            std::string::npos);
  EXPECT_NE(one(", max_tokens_per_minute: 18446744073709551615").find("allowed: 1 to"),
            std::string::npos);
  EXPECT_NE(one(", key_sha256: ab").find("one of them"), std::string::npos);
  EXPECT_NE(fault("keys: [{name: alice}]").find("one of them"), std::string::npos);
  EXPECT_NE(fault("keys: [{name: alice, key_sha256: AB}]").find("64 hexadecimal digits"),
            std::string::npos);
  EXPECT_NE(fault("keys: [{name: alice, key: 123}]").find("write it in quotes"), std::string::npos);
  EXPECT_NE(fault("keys: [{name: alice, key: 'a b'}]").find("visible ASCII"), std::string::npos);
  EXPECT_NE(fault("keys: [{name: 'a/b', key: x}]").find("`name` must be"), std::string::npos);
  EXPECT_NE(fault("keys: [{key: x}]").find("`name` must be"), std::string::npos);
  for (const char* again : {"{name: b, key: canary-key}", "{name: alice, key: y}"}) {
    const std::string message =
        fault(std::string("keys: [{name: alice, key: canary-key}, ") + again + "]");
    EXPECT_TRUE(message.starts_with("keys.yaml, key 2 (")) << message;
    EXPECT_NE(message.find("another"), std::string::npos) << message;
    EXPECT_EQ(message.find("canary"), std::string::npos) << message;
  }
}

TEST(KeyFile, TheFileIsAListOfKeys) {
  EXPECT_NE(fault("").find("expected fields (keys)"), std::string::npos);
  EXPECT_NE(fault("- a\n").find("not array"), std::string::npos);
  EXPECT_NE(fault("keys: []").find("at least one key"), std::string::npos);
  EXPECT_NE(fault("kyes: []").find("did you mean `keys`?"), std::string::npos);
  EXPECT_NE(fault("keys: [alice]").find("keys.yaml, key 1: expected fields"), std::string::npos);
  EXPECT_NE(fault("keys:\n- name: a\n  name: b\n").find("keys.yaml, line 3"), std::string::npos);
  EXPECT_THROW(read_key_file("/nowhere/keys.yaml"), Error);
}

}  // namespace
}  // namespace sluice
