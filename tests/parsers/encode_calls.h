// Calls as a family of models writes them, from the row of its format alone.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/parsers/tool_format.h"

namespace sluice {

struct EncodedCall {
  std::string name;
  // Key and JSON text of each argument, in order.
  std::vector<std::pair<std::string, std::string>> members;
  std::string arguments() const;  // {"KEY": VALUE, ...}
};

// The block or blocks of these calls. `ids` are written where the format has a place for them.
std::string encode_calls(const ToolFormat& format, const std::vector<EncodedCall>& calls,
                         const std::vector<std::string>& ids = {});

}  // namespace sluice
