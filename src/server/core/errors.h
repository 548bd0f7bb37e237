// The one writer of error bodies (R9): every route answers faults through it.
//
//   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
//
// That is OpenAI's shape; other protocols have their own (ErrorShape).
//
// Codes come from a fixed catalogue; messages say what was seen, what is allowed and what to
// change, and never hold addresses, paths, prompt text or the text of an exception. 429 and 503
// carry Retry-After with jitter, since client libraries retry by themselves. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/http.h"

namespace sluice {

// invalid_request_error, authentication_error, ... of a status.
std::string_view error_type(int status);
// Whether `code` is in the catalogue.
bool known_error_code(std::string_view code);

enum class ErrorShape : std::uint8_t {
  kOpenAi,     // the object above
  kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}
  kOllama,     // {"error": message}
};

// The object of a fault, on one line. A code outside the catalogue becomes `internal_error` with
// its fixed message. `request_id` is shown where the shape has it.
std::string error_json(const Fault& fault, ErrorShape shape = ErrorShape::kOpenAi,
                       std::string_view request_id = {});
HttpReply error_reply(const Fault& fault, ErrorShape shape = ErrorShape::kOpenAi,
                      std::string_view request_id = {});
// The answer to an exception: its text goes to the log, the client gets a fixed sentence and the
// request's id.
HttpReply internal_error_reply(std::string_view request_id, std::string_view exception_text,
                               ErrorShape shape = ErrorShape::kOpenAi);

Fault invalid_value(std::string param, std::string message);
Fault wrong_type(std::string param, std::string_view expected, std::string_view seen);
Fault missing_field(std::string param);
// A known field or value that this server does not offer; `why` ends the sentence "... is not
// supported: ".
Fault unsupported(std::string param, std::string_view why);

// A client's text, shortened and escaped for use inside a message.
std::string shown_text(std::string_view text, std::size_t max_bytes = 40);

}  // namespace sluice
