// From alternatives to nodes of the grammar.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/schema/alternatives.h"
#include "text/grammar/schema/schema.h"
#include "text/grammar/schema/schema_check.h"

namespace sluice::grammar {

class Lowering {
 public:
  Lowering(Grammar& grammar, std::shared_ptr<SchemaHost> host, const SchemaLanguages& strings,
           const SchemaOptions& options);

  // The node of the root and all that it needs.
  Result<NodeId> lower();

 private:
  // A node for the goal: its own where it is small, or a rule that run() defines later.
  NodeId node(const Goal& goal);
  // What the goal means, for a goal that other schemas of this grammar may have, too:
  // Grammar::name. Empty: the goal is this schema's own.
  std::string shared_name(const Goal& goal) const;
  // `is_raw`: strings stand without quotes (SchemaOptions::raw_string).
  NodeId define(const Goal& goal, bool is_raw = false);
  NodeId raw_text(LanguageId language, std::uint64_t min = 0, std::uint64_t max = kUnbounded);
  // Strings that are not checked, by the bounds of their length: they become one language.
  using Strings = std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<LanguageId>>;
  void lower_alternative(const Goal& goal, const Alternative& one, Strings& strings,
                         std::vector<NodeId>& options, bool is_raw);
  NodeId lower_constants(const Goal& goal, const Alternative& one);
  NodeId lower_number(const Alternative& one);
  NumberSet number_set(const Alternative& one) const;
  // Leaves the members that fulfil the literals, where all are known and few; false: they are not.
  bool keep_checked_members(const std::vector<Literal>& literals, NumberSet& set);
  NodeId lower_string(const Alternative& one);
  NodeId lower_array(const Alternative& one);
  // The items of an array of which some are contained; nothing where bounds are large.
  std::optional<NodeId> lower_contained(const Alternative& one, std::uint64_t max,
                                        std::size_t num_prefix);
  Goal item_goal(const Alternative& one, std::size_t at) const;
  NodeId lower_object(const Goal& goal, const Alternative& one);
  NodeId lower_values(const Goal& goal, const std::vector<JsonId>& values, bool is_plain_integer,
                      bool is_raw);
  // The values of a goal, each by itself, where they are listed and few. Their spellings differ.
  std::optional<std::vector<NodeId>> few_values(const Goal& goal);
  NodeId value(JsonId at);
  NodeId check_value(NodeId node, std::vector<Literal> literals);
  std::vector<Literal> checks(const Alternative& one, std::uint8_t types) const;
  LanguageId string_language(const Alternative& one);
  // The keys that fulfil the literals as strings; nothing where that takes a check.
  std::optional<LanguageId> key_language(const std::vector<Literal>& literals);

  // lowering_object.cpp
  struct Keys;
  // The keys that fulfil the literals as strings, where they are listed and few.
  std::optional<std::vector<std::string>> listed_keys(const std::vector<Literal>& literals);
  void add_members(const Alternative& one, Keys& keys, ObjectSpec& spec);
  bool add_extras(const Alternative& one, const Keys& keys, ObjectSpec& spec);
  std::vector<Literal> literals_of(const Alternative& one, const Keys& keys,
                                   const std::string& key);

  Grammar& grammar_;
  std::shared_ptr<SchemaHost> host_;
  const SchemaGraph& graph_;
  const SchemaLanguages& strings_;
  const SchemaOptions& options_;
  Expander expander_;
  NodeId space_{};
  NodeId comma_{};  // with space around it
  std::map<Goal, NodeId> nodes_;
  std::map<std::string, NodeId> numbers_;  // by NumberSet::canonical()
  std::vector<std::pair<Goal, RuleId>> pending_;
  bool has_checked_raw_string_ = false;
};

}  // namespace sluice::grammar
