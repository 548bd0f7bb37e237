// What a long conversation costs before the engine has it: JSON, messages, template, tokenizer.
//
//   build/release/bin/server_conversation [--mib 2] [--messages 2000] [--model DIR] [--runs 20]
//
// Prints the median of each part in milliseconds of processor time, for three kinds of text: plain
// ASCII, ASCII whose JSON has escapes (code), and text of other scripts. Single-threaded, as a text
// thread does it.
#include <algorithm>
#include <ctime>
#include <map>

#include "server/api/chat_prompt.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

// Of this thread, so that other programs count less.
double milliseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

std::string body_of(std::string_view sentence, std::size_t num_bytes, std::size_t num_messages) {
  Json messages = Json::array();
  const std::size_t each = num_bytes / num_messages;
  for (std::size_t i = 0; i < num_messages; ++i) {
    std::string text;
    while (text.size() < each) text += sentence;
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", text}});
  }
  return dump_json(Json{{"model", "tiny"}, {"messages", std::move(messages)}});
}

template <class Part>
auto timed(std::vector<double>& times, Part&& part) {
  const double start = milliseconds();
  auto out = part();
  times.push_back(milliseconds() - start);
  check(out.ok(), "a part of the conversation was refused");
  return std::move(*out);
}

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

int run(std::map<std::string, std::string> flags) {
  const std::shared_ptr<const ChatTemplate> chat = ChatTemplate::load(flags["model"]);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(flags["model"]);
  require(chat != nullptr, "{} has no chat template", flags["model"]);
  const struct {
    const char* name;
    std::string_view sentence;
  } texts[] = {
      {"English", "The quick brown fox jumps over the lazy dog, and the dog does not mind. "},
      {"code", "if (x == \"a\\n\") {\n\treturn f(\"b\");\n}\n"},
      {"Russian",
       "\xD0\x91\xD1\x8B\xD1\x81\xD1\x82\xD1\x80\xD0\xB0\xD1\x8F "
       "\xD0\xBB\xD0\xB8\xD1\x81\xD0\xB0 \xD0\xB1\xD0\xB5\xD0\xB6\xD0\xB8\xD1\x82. "},
  };
  for (const auto& text : texts) {
    const std::string body =
        body_of(text.sentence, static_cast<std::size_t>(std::stod(flags["mib"]) * (1 << 20)),
                std::stoul(flags["messages"]));
    std::vector<double> parse, read, render, encode, parsed_and_rendered;
    std::size_t num_tokens = 0;
    for (int i = 0; i < std::stoi(flags["runs"]); ++i) {
      const double start = milliseconds();
      const Json json = timed(parse, [&] { return parse_json(body, kRequestJson); });
      ChatInput input;
      input.messages = timed(read, [&] { return read_messages(json["messages"]); });
      const RenderedChat rendered = timed(render, [&] { return chat->render(input); });
      parsed_and_rendered.push_back(milliseconds() - start);
      EncodeOptions plain;
      plain.add_special_tokens = false;
      num_tokens = timed(encode, [&]() -> Result<std::vector<std::int32_t>> {
                     return tokenizer->encode(rendered.text, plain);
                   }).size();
    }
    fmt::print(
        "{:<8} {:.2f} MiB, {} messages, {} tokens: JSON {:.2f} ms, messages {:.2f} ms, template "
        "{:.2f} ms, together {:.2f} ms; tokenizer {:.1f} ms\n",
        text.name, static_cast<double>(body.size()) / (1 << 20), flags["messages"], num_tokens,
        median(parse), median(read), median(render), median(parsed_and_rendered), median(encode));
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"mib", "2"}, {"messages", "2000"}, {"model", "models/sluice-tiny"}, {"runs", "20"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[std::string(argv[i]).substr(2)] = argv[i + 1];
  try {
    return sluice::run(std::move(flags));
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.message().c_str());
    return sluice::exit_code(error.kind());
  }
}
