// Which parsers read the output of a model, told by the marks in its chat template.
//
//   detect_tool_parser(source)        // "qwen3_coder", or "" where no row knows the template
//   detect_reasoning_parser(source)   // "qwen3_5"
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// Names of rows of text/parsers/reasoning_formats.cpp and tool_formats.cpp; empty: none.
std::string detect_reasoning_parser(std::string_view template_source);
std::string detect_tool_parser(std::string_view template_source);

}  // namespace sluice
