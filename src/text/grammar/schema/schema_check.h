// The checks that a schema leaves to the end of a value.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/schema/alternatives.h"
#include "text/grammar/schema/schema_graph.h"
#include "text/grammar/schema/schema_strings.h"
#include "text/grammar/schema/validator.h"

namespace sluice::grammar {

// A schema with a validator of its own. Any thread; one check runs at a time.
class SchemaHost {
 public:
  SchemaHost(SchemaGraph graph, bool assert_formats)
      : graph_(std::move(graph)), assert_formats_(assert_formats) {}

  const SchemaGraph& graph() const { return graph_; }
  // Whether a value fulfils every literal.
  bool fulfils(const std::vector<Literal>& literals, const ExactJson& instance, JsonId at);
  // What of the items of an unfinished array decides whether it may still fulfil the literals.
  enum class ItemRule : std::uint8_t { kNone, kUnique, kAll };
  ItemRule item_rule(const std::vector<Literal>& literals) const;
  // Whether an array that begins with these items may still fulfil the literals, as far as
  // `uniqueItems` and `maxContains` of their schemas tell.
  bool may_fulfil(const std::vector<Literal>& literals, const ExactJson& items);

 private:
  SchemaValidator& validator();
  // The schemas that all of the literals' arrays obey.
  std::vector<SchemaId> conjuncts(const std::vector<Literal>& literals) const;

  const SchemaGraph graph_;
  const bool assert_formats_;
  std::mutex mutex_;
  // guarded by mutex_, made when first needed
  std::unique_ptr<LazySchemaStrings> strings_;
  std::unique_ptr<SchemaValidator> validator_;
};

class SchemaCheck : public ValueCheck {
 public:
  SchemaCheck(std::shared_ptr<SchemaHost> host, std::vector<Literal> literals)
      : host_(std::move(host)),
        literals_(std::move(literals)),
        item_rule_(host_->item_rule(literals_)) {}

  bool passes(std::string_view value) const override;
  bool is_viable(std::string_view prefix) const override;

 private:
  bool has_unique_items(std::string_view prefix) const;

  std::shared_ptr<SchemaHost> host_;
  std::vector<Literal> literals_;
  SchemaHost::ItemRule item_rule_;
  // A mask asks about many texts that differ in their last item: the items before it, in canonical
  // form, of the text that was looked at last.
  mutable std::mutex mutex_;
  mutable std::string head_ = "[";
  mutable std::unordered_set<std::string> head_items_;
};

}  // namespace sluice::grammar
