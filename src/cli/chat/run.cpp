// `sluice run`: a chat in the terminal, or one answer where a prompt was given or standard input is
// no terminal.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iostream>

#include "base/log.h"
#include "cli/chat/chat_session.h"
#include "cli/chat/grammar_flags.h"
#include "cli/chat/terminal.h"
#include "cli/colours.h"
#include "cli/download_bars.h"
#include "cli/files.h"
#include "cli/models/model_files.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "hub/resolve.h"
#include "server/serve.h"

namespace sluice {
namespace {

constexpr int kInterrupted = 130;

constexpr std::string_view kHelp =
    "/set NAME VALUE   temperature, top_p, top_k, min_p, repetition_penalty, seed, max_tokens, "
    "system,\n"
    "                  think (on, off); the value `default` takes it back; also /set verbose "
    "on|off\n"
    "/show             the model, what is set, and how long the conversation is\n"
    "/regenerate       answers the last message again\n"
    "/clear            forgets the conversation\n"
    "/save FILE        writes conversation and settings\n"
    "/load FILE        reads them back\n"
    "/bye              leaves; Ctrl-D and a second Ctrl-C do, too\n"
    "\n"
    "\"\"\" opens and closes a message of several lines; \\ at the end of a line continues it.\n"
    "Ctrl-C stops an answer.\n";

constexpr std::string_view kCommands[] = {"/bye",  "/clear",      "/exit", "/help", "/load",
                                          "/quit", "/regenerate", "/save", "/set",  "/show"};

// Prints an answer as it comes. On a terminal thinking is dim, or between marks where there is no
// colour; elsewhere the answer alone is printed.
class AnswerPrinter {
 public:
  AnswerPrinter(bool hide_thinking)
      : terminal_(isatty(STDOUT_FILENO) != 0),
        colour_(may_colour(STDOUT_FILENO)),
        show_thinking_(terminal_ && !hide_thinking) {}

  void show(const ChatDelta& delta) {
    if (show_thinking_ && !delta.reasoning.empty()) {
      if (!thinking_) put(colour_ ? "\x1b[2m" : "[thinking]\n");
      thinking_ = true;
      put(harmless(delta.reasoning));
    }
    if (delta.content.empty()) return;
    end_thinking();
    put(terminal_ ? harmless(delta.content) : delta.content);
  }
  void end() {
    end_thinking();
    put("\n");
  }

 private:
  void end_thinking() {
    if (thinking_) put(colour_ ? "\x1b[0m\n\n" : "\n[/thinking]\n\n");
    thinking_ = false;
  }
  static void put(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  bool terminal_, colour_, show_thinking_;
  bool thinking_ = false;
};

ChatSettings settings_of(const Arguments& arguments) {
  ChatSettings settings;
  for (const auto& [flag, name] : {std::pair("temperature", "temperature"),
                                   {"top-p", "top_p"},
                                   {"top-k", "top_k"},
                                   {"min-p", "min_p"},
                                   {"repetition-penalty", "repetition_penalty"},
                                   {"max-new-tokens", "max_tokens"},
                                   {"system", "system"},
                                   {"think", "think"}}) {
    if (!arguments.has(flag)) continue;
    try {
      settings.set(name, arguments.get(flag), false);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--{}: {}", flag, error.message()),
                       "sluice run --help says what is allowed");
    }
  }
  if (const auto seed = fixed_seed(arguments.options))
    settings.seed = static_cast<std::int64_t>(*seed);
  return settings;
}

class Chat {
 public:
  Chat(std::shared_ptr<const ServedModel> model, ChatSettings settings,
       std::optional<GrammarField> grammar, const Arguments& arguments, Interrupts& interrupts)
      : session_(std::move(model), arguments.options.sampling_defaults == "model"),
        interrupts_(interrupts),
        hide_thinking_(arguments.has("hide-thinking")),
        verbose_(arguments.has("verbose")) {
    session_.settings = std::move(settings);
    session_.grammar = std::move(grammar);
    if (!session_.has_template())
      fmt::print(stderr,
                 "this model has no chat template: each message is continued as plain text\n");
  }

  // The exit status.
  int answer_once(const std::string& prompt) {
    const std::optional<bool> interrupted = say(prompt);
    return !interrupted ? 2 : *interrupted ? kInterrupted : 0;
  }

  int converse(bool keep_history) {
    TerminalReader reader;
    const std::string path = keep_history ? history_path() : "";
    load_history(path, reader.history);
    reader.commands = kCommands;
    fmt::print("{}; /help lists the commands\n", session_.model().names[0]);
    const int status = read_messages(reader);
    if (keep_history && !save_history(path, reader.history))
      fmt::print(stderr, "the history could not be kept at '{}'\n", path);
    return status;
  }

 private:
  static constexpr std::string_view kPrompt = ">>> ", kMore = "... ";

  int read_messages(TerminalReader& reader) {
    MessageReader messages;
    bool interrupted = false;  // the last thing that came was Ctrl-C
    for (;;) {
      std::string line;
      const TerminalReader::End end = reader.read(messages.inside() ? kMore : kPrompt, line);
      if (end == TerminalReader::End::kEnd) return 0;
      if (end == TerminalReader::End::kInterrupt) {
        if (interrupted) return kInterrupted;
        interrupted = line.empty() && !messages.inside();
        messages.reset();
        if (interrupted) fmt::print("Ctrl-C again, or /bye, leaves\n");
        continue;
      }
      interrupted = false;
      std::string message;
      if (!messages.push(line, message) || message.find_first_not_of(" \t\n") == std::string::npos)
        continue;
      if (message[0] != '/') {
        say(message);
      } else if (!command(message)) {
        return 0;
      }
    }
  }

  // Whether it was interrupted; nothing where there was no answer, which is said.
  std::optional<bool> say(const std::string& message) {
    interrupts_.taken();  // what came before counts no more
    AnswerPrinter printer(hide_thinking_);
    const Result<ChatSession::Reply> reply = session_.say(
        message, [&](const ChatDelta& delta) { printer.show(delta); },
        [&] { return interrupts_.taken(); });
    if (!reply.ok()) {
      fmt::print(stderr, "error: {}\n", reply.fault().message);
      if (reply.fault().code == "context_length_exceeded" && !session_.messages().empty())
        fmt::print(stderr, "hint: /clear forgets the conversation\n");
      return std::nullopt;
    }
    printer.end();
    if (reply->interrupted) fmt::print(stderr, "(stopped)\n");
    if (reply->cut) fmt::print(stderr, "(the limit of tokens ended the answer)\n");
    if (verbose_) fmt::print(stderr, "{}", reply->timing.describe());
    return reply->interrupted;
  }

  // False: leave.
  bool command(const std::string& line) {
    const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(0, space);
    std::string rest = line.substr(space);
    rest.erase(0, std::min(rest.find_first_not_of(" \t\n"), rest.size()));
    try {
      if (name == "/bye" || name == "/exit" || name == "/quit") return false;
      if (name == "/help" || name == "/?") {
        fmt::print("{}", kHelp);
      } else if (name == "/set") {
        change(rest);
      } else if (name == "/show") {
        show();
      } else if (name == "/regenerate") {
        const std::string message = session_.take_back();
        require(!message.empty(), "there is no message to answer again");
        say(message);
      } else if (name == "/clear") {
        session_.clear();
        fmt::print("the conversation is forgotten\n");
      } else if (name == "/save" || name == "/load") {
        require(!rest.empty(), "{} needs a file", name);
        if (name == "/save")
          write_text_file(rest, session_.save().dump(2) + "\n");
        else
          session_.load(parse_json_or_throw(read_text_file(rest), rest));
        fmt::print("{} {}: {} messages\n", name == "/save" ? "wrote" : "read", rest,
                   session_.messages().size());
      } else {
        fail(ErrorKind::kBadInput, "there is no command {}; /help lists them", name);
      }
    } catch (const Error& error) {
      fmt::print(stderr, "error: {}\n", error.message());
    }
    return true;
  }

  void change(const std::string& words) {
    const std::size_t space = std::min(words.find(' '), words.size());
    const std::string name = words.substr(0, space);
    std::string value = words.substr(std::min(space + 1, words.size()));
    require(!name.empty() && !value.empty(),
            "/set is followed by a name and a value; /help lists the names");
    if (name == "verbose")
      verbose_ = value == "on" || value == "true";
    else
      session_.settings.set(name, value);
    fmt::print("{} is {}\n", name, value);
  }

  void show() {
    const ServedModel& model = session_.model();
    const Engine& engine = *model.engine;
    fmt::print("  model               {} ({})\n", model.names[0],
               engine.model_config().architecture);
    fmt::print("  type, context       {}, {} tokens\n", engine.dtype_name(),
               engine.context_length());
    fmt::print("  memory              {} of weights, {} of KV cache\n",
               format_bytes(engine.memory_plan().weight_bytes),
               format_bytes(engine.memory_plan().kv_bytes));
    fmt::print("  thinking            {}\n",
               model.reasoning_parser.empty() ? "not known of this model" : model.reasoning_parser);
    fmt::print("  conversation        {} messages\nset:\n{}", session_.messages().size(),
               session_.settings.describe());
  }

  ChatSession session_;
  Interrupts& interrupts_;
  bool hide_thinking_, verbose_;
};

// Loads on a thread of its own, so that Ctrl-C ends the program at once.
std::shared_ptr<const ServedModel> load(const Options& options, Interrupts& interrupts) {
  std::future<std::shared_ptr<const ServedModel>> loading = std::async(std::launch::async, [&] {
    obtain_model(options);
    LoadProgress progress(expected_weight_bytes(options));
    return load_served_model(options, progress.callback());
  });
  while (loading.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (!interrupts.taken()) continue;
    fmt::print(stderr, "\n");
    std::fflush(nullptr);
    _exit(kInterrupted);
  }
  return loading.get();
}

}  // namespace

int run_chat(const Arguments& arguments) {
  Arguments one = arguments;
  if (one.positional.size() > 1) one.positional.resize(1);
  Options options = model_options(one);
  // A prompt in the place of the model is told before another one is waited for.
  if (!std::filesystem::exists(options.model)) parse_model_name(options.model, "");
  const bool prompted = arguments.positional.size() > 1;
  const bool piped = isatty(STDIN_FILENO) == 0;
  std::string prompt = prompted ? arguments.positional[1] : "";
  if (prompted && prompt == "-") prompt = read_text_file("-");
  if (!prompted && piped) {
    prompt = read_text_file("-");
    while (prompt.ends_with('\n')) prompt.pop_back();
  }
  const bool once = prompted || piped;
  if (once && prompt.empty())
    throw UsageError("the prompt is empty",
                     "sluice run MODEL \"PROMPT\", or the prompt on standard input");

  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kError);
  if (options.max_running_requests == 0) options.max_running_requests = 1;
  ChatSettings settings = settings_of(arguments);  // before minutes of loading
  std::optional<GrammarField> grammar = grammar_of(arguments);
  Interrupts interrupts;
  Chat chat(load(options, interrupts), std::move(settings), std::move(grammar), arguments,
            interrupts);
  return once ? chat.answer_once(prompt) : chat.converse(!arguments.has("no-history"));
}

}  // namespace sluice
