// Why a schema has no value: the subschema that admits nothing, and the keywords that exclude each
// other there.
//
//   if (compiled.fault().code == "unsatisfiable_grammar")
//     return unsatisfiable_fault(schema, options);
//
// Any thread; slow (each question lowers the schema once more), so only for a fault. Large schemas
// are told without a place.
#pragma once

#include <string_view>

#include "base/error.h"
#include "text/grammar/schema/schema.h"

namespace sluice::grammar {

// `schema` has parsed, and no finite value fulfils it. Code unsatisfiable_json_schema.
Fault unsatisfiable_fault(std::string_view schema, const SchemaOptions& options);

}  // namespace sluice::grammar
