// The text half of `sluice verify`: tokenizers, chat templates and template snippets against
// recorded outputs.
#include "base/json.h"
#include "cli/files.h"
#include "cli/verbs.h"
#include "text/chat/template_oracle.h"
#include "text/tokenizer/tokenizer_oracle.h"

namespace sluice {
namespace {

Json read_json(const std::string& path) {
  return parse_json_or_throw(read_text_file(path), path);
}

int report(const std::string& what, const OracleReport& r) {
  for (const std::string& message : r.messages) fmt::print("{}\n", message);
  // A file without cases proves nothing.
  const bool ok = r.failures == 0 && r.cases > 0;
  fmt::print("{}: {} of {} cases, {}\n", what, r.cases - r.failures, r.cases, ok ? "ok" : "FAIL");
  return ok ? 0 : 1;
}

}  // namespace

int verify_text(const Arguments& arguments) {
  int status = 0;
  const auto oracle = [&] {
    if (!arguments.has("oracle"))
      throw UsageError("--oracle is missing", "give the file of reference outputs");
    return read_json(arguments.get("oracle"));
  };
  if (arguments.has("tokenizer")) {
    const std::string directory = arguments.get("tokenizer");
    status |= report(directory, check_tokenizer_oracle(*Tokenizer::load(directory), oracle()));
  }
  if (arguments.has("chat-template")) {
    const std::string directory = arguments.get("chat-template");
    status |= report(directory, check_chat_template_oracle(directory, oracle()));
  }
  if (arguments.has("snippets")) {
    const std::string path = arguments.get("snippets");
    status |= report(path, check_snippets(read_json(path)));
  }
  return status;
}

}  // namespace sluice
