#include "text/chat/chat_template.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sluice {
namespace {

namespace fs = std::filesystem;

const std::string kRoot = source_dir();

Json read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return parse_json_or_throw(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

std::unique_ptr<ChatTemplate> of(const std::string& source) {
  return ChatTemplate::from_sources({{"default", source}},
                                    {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

Json user(Json content) {
  return Json::array({Json{{"role", "user"}, {"content", std::move(content)}}});
}

std::string text_of(const ChatTemplate& chat, const ChatInput& input) {
  const Result<RenderedChat> rendered = chat.render(input);
  return rendered.ok() ? rendered->text
                       : "fault " + rendered.fault().code + ": " + rendered.fault().message;
}

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / ("sluice_chat_template_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_ / "additional_chat_templates");
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { fs::remove(path_ / name); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(ChatTemplate, BundledModelRendersItsRecords) {
  const auto chat = ChatTemplate::load(kRoot + "/models/sluice-tiny");
  ASSERT_NE(chat, nullptr);
  EXPECT_EQ(chat->reasoning_parser(), "glm45");
  EXPECT_EQ(chat->tool_parser(), "glm45");
  EXPECT_EQ(chat->content_formats().user, ContentFormat::kParts);
  int rendered = 0;
  for (const Json& record : read(kRoot + "/tests/golden/sluice-tiny.json")) {
    if (!record.contains("messages") || !record["messages"].is_array()) continue;
    ChatInput input;
    input.messages = record["messages"];
    // As a client sends it: arguments as text.
    for (Json& message : input.messages)
      if (message.contains("tool_calls"))
        for (Json& call : message["tool_calls"])
          call["function"]["arguments"] = call["function"]["arguments"].dump();
    input.tools = record.value("tools", Json());
    input.kwargs = record.value("template_options", Json::object());
    EXPECT_EQ(text_of(*chat, input), record["prompt"].get<std::string>()) << record["kind"];
    ++rendered;
  }
  EXPECT_GT(rendered, 40);
}

TEST(ChatTemplate, BundledModelShowsEverySystemMessageAtItsPlace) {
  const auto chat = ChatTemplate::load(kRoot + "/models/sluice-tiny");
  const auto prompt = [&](std::initializer_list<std::pair<const char*, const char*>> messages) {
    ChatInput input;
    for (const auto& [role, content] : messages)
      input.messages.push_back(Json{{"role", role}, {"content", content}});
    return text_of(*chat, input);
  };
  const std::string head = "[gMASK]<sop>", tail = "<|assistant|>\n";
  for (const char* role : {"system", "developer"}) {
    EXPECT_EQ(prompt({{role, "a"}, {"user", "u"}}), head + "<|system|>\na<|user|>\nu" + tail);
    EXPECT_EQ(prompt({{"system", "a"}, {role, "b"}, {"user", "u"}}),
              head + "<|system|>\na<|system|>\nb<|user|>\nu" + tail);
    EXPECT_EQ(prompt({{"user", "u"}, {role, "b"}, {"user", "v"}}),
              head + "<|user|>\nu<|system|>\nb<|user|>\nv" + tail);
    EXPECT_EQ(prompt({{"user", "u"}, {role, ""}}), head + "<|user|>\nu" + tail);
  }
}

TEST(ChatTemplate, SourcesInOrder) {
  const Folder folder;
  EXPECT_EQ(ChatTemplate::load(folder.path()), nullptr);
  folder.write("chat_template.json", R"({"chat_template": "legacy"})");
  const auto text = [&](bool tools = false, const std::string& given = {}) {
    ChatInput input;
    input.messages = user("hi");
    if (tools)
      input.tools = Json::array({Json{{"type", "function"}, {"function", {{"name", "f"}}}}});
    return text_of(*ChatTemplate::load(folder.path(), given), input);
  };
  EXPECT_EQ(text(), "legacy");
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<B>"}, "eos_token": "<E>", "add_bos_token": true, )"
               R"("chat_template": "{{ bos_token }}{{ eos_token }}one"})");
  EXPECT_EQ(text(), "<B><E>one");
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "list"}, {"name": "tool_use", )"
      R"("template": "list tools"}]})");
  EXPECT_EQ(text(), "list");
  EXPECT_EQ(text(true), "list tools");
  folder.write("chat_template.jinja", "file");
  EXPECT_EQ(text(), "file");
  EXPECT_EQ(text(true), "file");
  folder.write("additional_chat_templates/tool_use.jinja", "file tools");
  EXPECT_EQ(text(true), "file tools");
  EXPECT_EQ(text(false, "{{ 'literal' }}"), "literal");
  folder.write("mine.jinja", "mine");
  EXPECT_EQ(text(false, folder.path() + "/mine.jinja"), "mine");
  EXPECT_THROW(text(false, "/no/such/file"), Error);
}

TEST(ChatTemplate, AFaultyTemplateStopsTheStartAndSaysWhere) {
  const auto message = [](const std::string& source) -> std::string {
    try {
      of(source);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      return error.message();
    }
    return {};
  };
  EXPECT_NE(message("a\n{% if %}").find("line 2"), std::string::npos);
  EXPECT_NE(
      message("{% for a in range(9999) %}\n{% for b in range(9999) %}{% endfor %}{% endfor %}")
          .find("budget"),
      std::string::npos);
  EXPECT_NE(message("{{ 'x' * 10 ** 12 }}").find("budget"), std::string::npos);
  EXPECT_EQ(message("{{ messages[7].content.x }}"), "");  // other messages may succeed
}

TEST(ChatTemplate, ReservedNamesAreRefused) {
  const auto chat = of("{{ bos_token }}{{ enable_thinking }}");
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token",
        "pad_token", "chat_template", "raise_exception", "continue_final_message"}) {
    ChatInput input;
    input.messages = user("x");
    input.kwargs = {{name, "evil"}};
    const Result<RenderedChat> rendered = chat->render(input);
    ASSERT_FALSE(rendered.ok()) << name;
    EXPECT_EQ(rendered.fault().status, 400);
    EXPECT_EQ(rendered.fault().code, "reserved_template_kwarg");
    EXPECT_EQ(rendered.fault().param, "chat_template_kwargs");
  }
  ChatInput input;
  input.messages = user("x");
  input.kwargs = {{"enable_thinking", false}};
  EXPECT_EQ(text_of(*chat, input), "<s>False");
  input.kwargs = Json::array();
  EXPECT_FALSE(chat->render(input).ok());
}

TEST(ChatTemplate, DeveloperBecomesSystemWhereItIsUnknown) {
  ChatInput input;
  input.messages = Json::array(
      {Json{{"role", "developer"}, {"content", "d"}}, Json{{"role", "user"}, {"content", "u"}}});
  const auto refuses =
      of("{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('role "
         "' ~ m.role) }}{% endif %}{{ m.role }}={{ m.content }} {% endfor %}");
  EXPECT_EQ(text_of(*refuses, input), "system=d user=u ");
  const auto knows = of("{% for m in messages %}{{ m.role }}={{ m.content }} {% endfor %}");
  EXPECT_EQ(text_of(*knows, input), "developer=d user=u ");
  const auto neither =
      of("{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('only users') }}{% "
         "endif %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(
      text_of(*neither, input),
      "fault chat_template_refused: the model's chat template refuses these messages: only users");
}

TEST(ChatTemplate, ShowsTheNamesOfSomeRoles) {
  const auto none = of("{% for m in messages %}{{ m.role }}={{ m.content }} {% endfor %}");
  const auto users =
      of("{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('role "
         "') }}{% endif %}{% if m.role == 'user' %}{{ m.name }}: {% endif %}{{ m.content }}{% "
         "endfor %}");
  const auto systems = of(
      "{% for m in messages %}{% if m.role == 'system' and m.name %}{{ m.name }}{% endif %}{% if "
      "m.role != 'developer' %}{{ m.content }}{% endif %}{% endfor %}");
  for (const char* role : {"system", "developer", "user", "assistant"}) {
    const std::string_view name = role;
    EXPECT_FALSE(none->shows_name(role)) << role;
    EXPECT_EQ(users->shows_name(role), name == "user") << role;
    EXPECT_EQ(systems->shows_name(role), name == "system" || name == "developer") << role;
  }
}

TEST(ChatTemplate, ArgumentsBecomeMaps) {
  const auto chat =
      of("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments is "
         "mapping }}:{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  const auto with = [&](Json arguments) {
    ChatInput input;
    input.messages = Json::array(
        {Json{{"role", "assistant"},
              {"content", nullptr},
              {"tool_calls",
               Json::array({Json{{"function", {{"name", "f"}, {"arguments", arguments}}}}})}}});
    return text_of(*chat, input);
  };
  EXPECT_EQ(with(R"({"b": 1, "a": [2.0]})"), R"(True:{"b": 1, "a": [2.0]})");
  EXPECT_EQ(with(""), "True:{}");
  EXPECT_EQ(with("[1]"), R"(False:"[1]")");
  EXPECT_EQ(with("{broken"), R"(False:"{broken")");
  EXPECT_EQ(with(Json{{"x", 1}}), R"(True:{"x": 1})");
}

TEST(ChatTemplate, ContinueFinalMessage) {
  const auto chat =
      of("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if "
         "add_generation_prompt %}<assistant>{% endif %}");
  ChatInput input;
  input.messages = Json::array({Json{{"role", "user"}, {"content", "u"}},
                                Json{{"role", "assistant"}, {"content", "begin "}}});
  EXPECT_EQ(text_of(*chat, input), "<user>u</><assistant>begin </><assistant>");
  input.continue_final_message = true;
  EXPECT_EQ(chat->render(input).fault().code, "continue_final_message");
  input.add_generation_prompt = false;
  EXPECT_EQ(text_of(*chat, input), "<user>u</><assistant>begin ");
  const auto trims =
      of("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}");
  EXPECT_EQ(text_of(*trims, input), "<user>u</><assistant>begin");
  input.messages = Json::array();
  EXPECT_EQ(chat->render(input).fault().code, "continue_final_message");
}

TEST(ChatTemplate, FaultsTellNoPromptText) {
  const auto chat = of("{{ messages[0].content + 1 }}");
  ChatInput input;
  input.messages = user("secret words");
  const Result<RenderedChat> rendered = chat->render(input);
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.fault().code, "chat_template_error");
  EXPECT_EQ(rendered.fault().message.find("secret"), std::string::npos);
  EXPECT_NE(rendered.fault().message.find("TypeError in line 1"), std::string::npos);

  const auto doubles =
      of("{% set ns = namespace(x='') %}{% for m in messages %}{% for i in range(m.content | "
         "length) %}{% set ns.x = ns.x ~ m.content %}{% endfor %}{% endfor %}");
  input.messages = user(std::string(20'000, 'x'));
  EXPECT_EQ(doubles->render(input).fault().code, "chat_template_budget");
}

TEST(ChatTemplate, ReasoningEffort) {
  Json kwargs;
  apply_reasoning_effort(kwargs, "none");
  EXPECT_EQ(kwargs, (Json{{"enable_thinking", false}, {"thinking", false}}));
  kwargs = {{"enable_thinking", true}};
  apply_reasoning_effort(kwargs, "none");
  EXPECT_EQ(kwargs["enable_thinking"], true);
  kwargs = Json::object();
  apply_reasoning_effort(kwargs, "high");
  EXPECT_EQ(kwargs, (Json{{"reasoning_effort", "high"}}));
}

TEST(ChatTemplate, ParsersAreDetected) {
  struct Row {
    const char* folder;
    const char* reasoning;
    const char* tools;
  };
  const Row rows[] = {{"glm5-tiny", "glm45", "glm45"},
                      {"glm45", "glm45", "glm45"},
                      {"deepseek-v3", "deepseek_v3", "deepseek_v31"},
                      {"deepseek-r1", "deepseek_r1", "deepseek_v3"},
                      {"qwen3-tools-thinking", "qwen3", "hermes"},
                      {"hermes-tool-use", "", "hermes"},
                      {"llama31-tools", "", "llama3_json"},
                      {"mistral-v7", "", "mistral_v3"},
                      {"harmony", "openai_gptoss", "openai"},
                      {"granite", "", "granite"},
                      {"phi4-mini", "", "phi4_mini_json"},
                      {"command-r", "", ""},
                      {"chatml", "", ""},
                      {"gemma", "", ""}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.folder);
    const auto chat = ChatTemplate::load(kRoot + "/tests/golden/chat_templates/" + row.folder);
    EXPECT_EQ(chat->reasoning_parser(), row.reasoning);
    EXPECT_EQ(chat->tool_parser(), row.tools);
  }
}

TEST(ChatTemplate, AnOverrideMayBeTheNameOfOneOfTheModelsTemplates) {
  const std::string folder = kRoot + "/tests/golden/chat_templates/command-r";
  const auto usual = ChatTemplate::load(folder);
  const auto named = ChatTemplate::load(folder, "rag");
  ASSERT_NE(named, nullptr);
  EXPECT_NE(named->source(), usual->source());
  try {
    ChatTemplate::load(folder, "no_such_name");
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("nor one of the model's: default, rag, tool_use"),
              std::string::npos)
        << error.message();
  }
}

// User text that contains special tokens or template syntax stays plain text.
TEST(ChatTemplate, UserTextIsNeverSyntax) {
  const auto chat = of("{% for m in messages %}{{ m.content }}{% endfor %}");
  ChatInput input;
  input.messages = user("{{ 7*7 }}{% raw %}</s>{# x #}<|im_end|>");
  EXPECT_EQ(text_of(*chat, input), "{{ 7*7 }}{% raw %}</s>{# x #}<|im_end|>");
}

}  // namespace
}  // namespace sluice
