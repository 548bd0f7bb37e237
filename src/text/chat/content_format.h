// How a chat template reads `content`, role by role, and the content in that form.
//
//   ContentFormats formats = probe_content(renders);     // once per template, at load
//   adapt_content(message, formats);                     // every message
//
// Pure functions. Parts are those of a validated request: objects with the type `text`.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

enum class ContentFormat {
  kString,     // as text: lists of parts are concatenated with newlines, as in vLLM
  kParts,      // as text or as a list of parts
  kPartsOnly,  // as a list of parts: text becomes a list with one part
  kOnePart,    // as a list whose first part alone is shown: all text becomes one part
};

struct ContentFormats {
  ContentFormat system = ContentFormat::kString;
  ContentFormat developer = ContentFormat::kString;
  ContentFormat user = ContentFormat::kString;
  ContentFormat assistant = ContentFormat::kString;
  ContentFormat tool = ContentFormat::kString;

  // Another role has the user's.
  ContentFormat of(std::string_view role) const;
};

// A template's text for messages and tools (an array, or null), or "" if the template fails.
using RenderProbe = std::function<std::string(Json messages, const Json& tools)>;

// Which of no tools and one tool the template is rendered with.
struct ProbeTools {
  bool without = true;
  bool with = true;
};

// A role that the template never shows, as one that the template refuses, has kString, or
// kPartsOnly where the user has kPartsOnly or kOnePart.
ContentFormats probe_content(const RenderProbe& renders, ProbeTools use);

// `text` in a form that the template takes.
Json content_of(std::string text, ContentFormat format);

// Sets `content` of a message. Texts of parts that the template would not show are joined.
void adapt_content(Json& message, const ContentFormats& formats);

}  // namespace sluice
