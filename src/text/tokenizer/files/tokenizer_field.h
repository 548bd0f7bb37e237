// A value of a tokenizer.json and its path, so that every error names its field.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice {

class JsonField {
 public:
  JsonField(simdjson::dom::element value, std::string path)
      : value_(value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool is_null() const { return value_.is_null(); }
  bool is_string() const { return value_.is_string(); }
  bool is_array() const { return value_.is_array(); }

  // A member that may be absent or null.
  std::optional<JsonField> find(std::string_view key) const {
    simdjson::dom::element member;
    if (object()[key].get(member) != simdjson::SUCCESS || member.is_null()) return std::nullopt;
    return JsonField(member, path_of(key));
  }
  JsonField at(std::string_view key) const {
    const auto member = find(key);
    require(member.has_value(), "{} is missing", path_of(key));
    return *member;
  }
  simdjson::dom::object object() const {
    simdjson::dom::object out;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be an object", path_);
    return out;
  }
  simdjson::dom::array array() const {
    simdjson::dom::array out;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be an array", path_);
    return out;
  }
  std::vector<JsonField> items() const {
    std::vector<JsonField> out;
    for (const simdjson::dom::element item : array())
      out.emplace_back(item, fmt::format("{}[{}]", path_, out.size()));
    return out;
  }
  std::string_view text() const {
    std::string_view out;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be a string", path_);
    return out;
  }
  bool boolean() const {
    bool out = false;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be true or false", path_);
    return out;
  }
  std::int64_t integer() const {
    std::int64_t out = 0;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be an integer of 64 bits", path_);
    return out;
  }
  double number() const {
    double out = 0;
    require(value_.get(out) == simdjson::SUCCESS, "{} must be a number", path_);
    return out;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const auto member = find(key);
    return member ? member->boolean() : otherwise;
  }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    const auto member = find(key);
    return std::string(member ? member->text() : otherwise);
  }

 private:
  // A file's own path ends with a colon.
  std::string path_of(std::string_view key) const {
    return fmt::format("{}{}{}", path_, path_.ends_with(':') ? ' ' : '.', key);
  }

  simdjson::dom::element value_;
  std::string path_;
};

}  // namespace sluice
