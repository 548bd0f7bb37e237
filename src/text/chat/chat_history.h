// Histories as clients send them back, in the form that a chat template reads.
//
//   HistoryRules rules = probe_history(renders);      // once, at load
//   adapt_calls(message, rules);                      // every message
//   if (fit_ids(messages)) ...                        // where the template refused the messages
//   if (fit_system(messages)) ...                     // likewise
//
// Pure functions. A message that a server may have sent, whole or cut off, is never refused here.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "text/chat/content_format.h"

namespace sluice {

// How a template reads the calls of an assistant message.
struct HistoryRules {
  bool text_arguments = false;  // arguments as JSON text: as an object they fail or are lost
  bool takes_text = false;      // arguments that are a text are shown as well as an object
  bool null_is_empty = false;   // content beside calls as "", where null prints "None" or fails
  bool empty_is_null = false;   // content beside calls as null, where "" loses the calls
};

// `renders` gives a template's text for messages, or "" if the template fails.
HistoryRules probe_history(const std::function<std::string(Json)>& renders,
                           const ContentFormats& formats);

// Sets content and arguments of a message with calls. Arguments that are no JSON object (a call
// that was cut off) stay text where the template takes one; elsewhere they become the object of
// their whole members, or of one member "arguments".
void adapt_calls(Json& message, const HistoryRules& rules);

// Gives every call and result an id of 9 letters or digits, which Mistral's templates insist on,
// and every result the name of its call. Ids that belong together stay together. False if nothing
// changed.
bool fit_ids(Json& messages);

// Joins all messages of the system and the developer, by blank lines, into one of the system that
// stands first. False if nothing changed.
bool fit_system(Json& messages);

}  // namespace sluice
