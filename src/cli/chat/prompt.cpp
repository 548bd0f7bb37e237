#include "cli/chat/prompt.h"

#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "cli/download_bars.h"
#include "server/core/model_text.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

jinja::Clock local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  jinja::Clock clock;
  clock.year = parts.tm_year + 1900;
  clock.month = parts.tm_mon + 1;
  clock.day = parts.tm_mday;
  clock.hour = parts.tm_hour;
  clock.minute = parts.tm_min;
  clock.second = parts.tm_sec;
  return clock;
}

}  // namespace

TextTools load_text_tools(const Options& options, bool optional) {
  TextTools tools;
  tools.directory = local_text_directory(options);
  if (tools.directory.empty()) tools.directory = obtain_tokenizer(options).directory;
  tools.chat_template_override = options.chat_template;
  if (optional && !has_tokenizer(tools.directory)) return tools;
  tools.tokenizer = load_tokenizer(tools.directory, tokenizer_mode(options));
  return tools;
}

void check_chat_flags(const Arguments& arguments) {
  if (arguments.has("chat")) return;
  if (arguments.has("system"))
    throw UsageError("--system has no effect without --chat",
                     "add --chat, which puts the model's chat template around the text");
  if (arguments.was_given("chat-template"))
    log_warning("--chat-template changes nothing without --chat");
}

std::string render_chat(const TextTools& tools, const std::string& system,
                        const std::string& user) {
  const auto chat = load_chat_template(tools.directory, tools.chat_template_override);
  require(chat != nullptr,
          "{} has no chat template: give --chat-template a file, or leave --chat out",
          tools.directory);
  ChatInput input;
  if (!system.empty()) input.messages.push_back({{"role", "system"}, {"content", system}});
  input.messages.push_back({{"role", "user"}, {"content", user}});
  input.now = local_time();
  Result<RenderedChat> rendered = chat->render(input);
  require(rendered.ok(), "the chat template refused: {}",
          rendered.ok() ? "" : rendered.fault().message);
  return std::move(rendered).value().text;
}

}  // namespace sluice
