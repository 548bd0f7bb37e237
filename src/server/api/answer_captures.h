// The captures of answers (text/grammar/captures/captures.h), as `return_captures` asks for them:
//
//   "captures": [{"name": "year", "text": "2026", "start": 3, "end": 7}]
//
// in the order of their ends. `start` and `end` count the characters of the answer behind the
// thoughts. Null: the text could not be divided within the steps of captures.h.
#pragma once

#include <optional>

#include "server/api/request_fields.h"
#include "server/core/generation.h"
#include "server/core/server_state.h"

namespace sluice {

// Gives `plan` its captures where `fields` ask for them. Faults: 400 where the request has no
// grammar, or one without names; others of compile_captures(). Text threads.
std::optional<Fault> add_captures(const ServedModel& model, const HttpRequest& request,
                                  const GenerationFields& fields, GenerationPlan& plan);

}  // namespace sluice
