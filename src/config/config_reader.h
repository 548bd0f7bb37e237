// Typed, range-checked access to the keys of a config.json.
//
// One table (config_reader.cpp) holds the type and range of every numeric key; other keys cannot be
// read. Errors are Error{kBadInput}: "config.json: hidden_size is 0; it must be an integer from 1
// to 1048576".
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

class ConfigReader {
 public:
  // `object` must outlive the reader. `prefix` ("rope_scaling.") goes before keys in messages.
  ConfigReader(const Json& object, std::string what, std::string prefix = {});

  const std::string& what() const { return what_; }
  // Null if the key is absent or its value is null; only `has_key` distinguishes the two.
  const Json* find(std::string_view key) const;
  bool has_key(std::string_view key) const { return object_.contains(key); }

  int required_int(std::string_view key) const;
  std::optional<int> find_int(std::string_view key) const;
  int int_or(std::string_view key, int fallback) const { return find_int(key).value_or(fallback); }

  double required_number(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  double number_or(std::string_view key, double fallback) const {
    return find_number(key).value_or(fallback);
  }

  bool bool_or(std::string_view key, bool fallback) const;
  std::optional<std::string> find_string(std::string_view key) const;

  // The first of `keys` with a value; the first of all if none has a value.
  std::string_view first_of(std::initializer_list<std::string_view> keys) const;

  // A list of short strings, such as layer_types, with exactly `size` entries. Nothing if absent or
  // null.
  std::optional<std::vector<std::string>> find_strings(std::string_view key,
                                                       std::size_t size) const;
  // A required list of exactly `size` numbers in [min, max].
  std::vector<double> numbers(std::string_view key, std::size_t size, double min, double max) const;
  // A list of integers in [min, max]; empty if absent or null. A single integer is a list of one.
  std::vector<int> ints(std::string_view key, int min, int max, std::size_t max_size) const;

  // Throws: "<what>: <prefix><key> is <value>; <wanted>".
  [[noreturn]] void reject(std::string_view key, std::string_view wanted) const;

 private:
  const Json& object_;
  std::string what_;
  std::string prefix_;
};

// A token id; nothing if it is absent or no id. -1 means "none" in old files.
std::optional<int> read_token_id(const ConfigReader& config, std::string_view key);

// One id or a list of them, ascending and without repeats; what is no id is left out (end_tokens.h
// notes it).
std::vector<int> read_token_ids(const ConfigReader& config, std::string_view key);

// Parses the text of a config.json. NaN, Infinity and numbers beyond a double, which Python writes,
// become strings. So an error for a key shows its text, and a key that is not read does no harm.
Json parse_config_text(std::string_view text, std::string_view what);

// Lays `patch` over `base`: objects merge key by key, any other value replaces.
void merge_json(Json& base, const Json& patch);

}  // namespace sluice
