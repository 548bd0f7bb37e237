// Fields that nobody reads: they are named in the log, once each, and in the header
// `X-Ignored-Fields` of the answer. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http/http.h"

namespace sluice {

// Appends the names in `object` that `known` does not list to `ignored`, after `prefix`
// ("sampling_params."). The log says which known name is nearest. Null values ask for nothing.
void note_unknown(const Json& object, std::span<const std::string_view> known,
                  std::string_view prefix, std::vector<std::string>& ignored);

// Notes a known field that has no effect here.
void note_without_effect(std::string path, std::vector<std::string>& ignored);

// Tells the client which fields changed nothing. Before the answer begins.
void tell_ignored(Responder& responder, const std::vector<std::string>& ignored);

}  // namespace sluice
