#include "base/yaml.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Json read(std::string_view text) {
  Result<Json> value = parse_yaml(text);
  EXPECT_TRUE(value.ok()) << (value.ok() ? "" : value.fault().message);
  return value.ok() ? *value : Json();
}

std::string fault(std::string_view text) {
  const Result<Json> value = parse_yaml(text);
  EXPECT_FALSE(value.ok()) << text;
  return value.ok() ? "" : value.fault().message;
}

TEST(Yaml, ScalarsHaveTheTypesOfTheCoreSchema) {
  EXPECT_EQ(read("a: 1\nb: -2\nc: 0x1f\nd: 0o17\ne: 0.5\nf: 1e3\ng: true\nh: ~\ni:\n"),
            Json::parse(R"({"a": 1, "b": -2, "c": 31, "d": 15, "e": 0.5, "f": 1000.0,
                           "g": true, "h": null, "i": null})"));
  EXPECT_EQ(read("a: 32k\nb: '7'\nc: \"true\"\nd: yes\ne: 1.2.3\nf: 10.0.0.1\ng: 12e\n"),
            Json::parse(R"({"a": "32k", "b": "7", "c": "true", "d": "yes", "e": "1.2.3",
                           "f": "10.0.0.1", "g": "12e"})"));
  EXPECT_EQ(read("a: 18446744073709551615")["a"], 18446744073709551615ull);
}

TEST(Yaml, ListsMappingsAndJson) {
  EXPECT_EQ(read("keys:  # a comment\n- name: x\n  list: [1, two]\n- {name: y}\n"),
            Json::parse(R"({"keys": [{"name": "x", "list": [1, "two"]}, {"name": "y"}]})"));
  EXPECT_EQ(read(R"({"a": {"b": [1, 2.5, null, "c\n"]}})"),
            Json::parse(R"({"a": {"b": [1, 2.5, null, "c\n"]}})"));
  EXPECT_EQ(read("text: |\n  one\n  two\n")["text"], "one\ntwo\n");
  EXPECT_TRUE(read("").is_null());
  EXPECT_TRUE(read("# only a comment\n").is_null());
}

TEST(Yaml, FaultsNameTheLine) {
  EXPECT_EQ(fault("a: 1\na: 2\n"), "line 2: `a` stands twice");
  EXPECT_EQ(fault("a: &x 1\nb: *x\n"),
            "line 2: aliases (*name) are not read; write the value again");
  EXPECT_EQ(fault("\na: !!python/object 1\n"), "line 2: tags (!name) are not read");
  EXPECT_EQ(fault("a: 1\n---\nb: 2\n"), "line 2: there is a second document");
  EXPECT_EQ(fault("[1]: 2\n"), "line 1: a key must be text");
  EXPECT_TRUE(fault("a: [1, 2\nb: 3\n").starts_with("line 2: "));
  EXPECT_TRUE(fault("a: 1\n\tb: 2\n").starts_with("line 2: "));
  EXPECT_THROW(parse_yaml_or_throw("a: *b", "keys.yaml"), Error);
}

TEST(Yaml, DepthAndLengthAreBounded) {
  EXPECT_EQ(read(std::string(16, '[') + std::string(16, ']')).size(), 1u);
  EXPECT_EQ(fault(std::string(17, '[') + std::string(17, ']')),
            "line 1: it is nested more than 16 deep");
  EXPECT_FALSE(parse_yaml(std::string(100'000, '[')).ok());
  EXPECT_FALSE(parse_yaml(std::string((1 << 20) + 1, ' ')).ok());
}

}  // namespace
}  // namespace sluice
