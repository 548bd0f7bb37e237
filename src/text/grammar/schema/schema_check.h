// The checks that a schema leaves to the end of a value.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
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
  // Whether an array that begins with these items may still fulfil the literals, as far as
  // `uniqueItems` and `maxContains` of their schemas tell.
  bool may_fulfil(const std::vector<Literal>& literals, const ExactJson& items);

 private:
  SchemaValidator& validator();

  const SchemaGraph graph_;
  const bool assert_formats_;
  std::mutex mutex_;
  // guarded by mutex_, made when first needed
  std::unique_ptr<Languages> languages_;
  std::unique_ptr<SchemaLanguages> strings_;
  std::unique_ptr<SchemaValidator> validator_;
};

class SchemaCheck : public ValueCheck {
 public:
  SchemaCheck(std::shared_ptr<SchemaHost> host, std::vector<Literal> literals)
      : host_(std::move(host)), literals_(std::move(literals)) {}

  bool passes(std::string_view value) const override;
  bool is_viable(std::string_view prefix) const override;

 private:
  std::shared_ptr<SchemaHost> host_;
  std::vector<Literal> literals_;
};

}  // namespace sluice::grammar
