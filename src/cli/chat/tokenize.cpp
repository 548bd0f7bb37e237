// `sluice tokenize`: what a text becomes, piece by piece.
#include "text/tokenizer/tokenizer.h"

#include "base/json.h"
#include "cli/chat/prompt.h"
#include "cli/files.h"
#include "cli/verbs.h"

namespace sluice {
namespace {

// The piece between quotes, with what a terminal would not show as escapes.
std::string in_quotes(std::string_view bytes) {
  std::string out = "\"";
  for (char c : bytes) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (u < 0x20 || u == 0x7F) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A piece may end inside a character: then its bytes are shown instead.
bool is_whole_utf8(const Json& value) {
  try {
    value.dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

std::string shown(std::string_view bytes) {
  if (is_whole_utf8(Json(std::string(bytes)))) return in_quotes(bytes);
  std::string out;
  for (char c : bytes) out += fmt::format("<{:02x}>", static_cast<unsigned char>(c));
  return out;
}

}  // namespace

int run_tokenize(const Arguments& arguments) {
  // The arguments are the model and the text, each unless a flag gives it.
  Arguments of_model = arguments;
  std::optional<std::string> text_argument;
  if (const std::size_t first = arguments.options.model.empty() ? 1 : 0;
      arguments.positional.size() > first) {
    text_argument = arguments.positional.back();
    of_model.positional.pop_back();
  }
  const Options options = model_options(of_model);
  if (arguments.has("prompt") == text_argument.has_value())
    throw UsageError("no text, or two of them",
                     "give the text once, as an argument or as --prompt");
  check_chat_flags(arguments);
  std::string text = text_argument.value_or(arguments.get("prompt"));
  if (text == "-") text = read_text_file(text);
  const TextTools tools = load_text_tools(options);
  EncodeOptions encode;
  encode.add_special_tokens = !arguments.has("no-special");
  if (arguments.has("chat")) {
    text = render_chat(tools, arguments.get("system"), text);
    encode.add_special_tokens = false;
  }
  const std::vector<std::int32_t> ids = tools.tokenizer->encode(text, encode);
  const std::string back = tools.tokenizer->decode(ids, false);

  if (arguments.has("json")) {
    Json pieces = Json::array();
    for (std::int32_t id : ids) pieces.push_back(tools.tokenizer->token_text(id));
    fmt::print("{}\n", dump_json({{"count", ids.size()},
                                  {"ids", ids},
                                  {"pieces", pieces},
                                  {"text", text},
                                  {"decoded", back},
                                  {"round_trip", back == text}}));
    return 0;
  }
  if (arguments.has("chat")) fmt::print("{}\n\n", text);
  for (std::int32_t id : ids)
    fmt::print("{:>8}  {}{}\n", id, shown(tools.tokenizer->token_bytes_view(id)),
               tools.tokenizer->is_special(id) ? "  special" : "");
  fmt::print("{} tokens; decoding them {}\n", ids.size(),
             back == text ? "gives the text back" : "gives: " + in_quotes(back));
  return 0;
}

}  // namespace sluice
