#include "cli/chat/chat_session.h"

#include <condition_variable>
#include <mutex>
#include <random>

#include "engine/options_parse.h"
#include "server/api/chat_prompt.h"
#include "server/api/tool_choice.h"
#include "server/core/grammars.h"
#include "text/tokenizer/detokenizer.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

struct NumberSetting {
  std::string_view name;
  std::optional<double> ChatSettings::* field;
  double low, high;
};
constexpr NumberSetting kNumbers[] = {
    {"temperature", &ChatSettings::temperature, 0, 100},
    {"top_p", &ChatSettings::top_p, 1e-9, 1},
    {"min_p", &ChatSettings::min_p, 0, 1},
    {"repetition_penalty", &ChatSettings::repetition_penalty, 1e-9, 2},
};

struct WholeSetting {
  std::string_view name;
  std::optional<std::int64_t> ChatSettings::* field;
  std::int64_t low, high;
};
constexpr WholeSetting kWholes[] = {
    {"top_k", &ChatSettings::top_k, -1, INT32_MAX},
    {"seed", &ChatSettings::seed, 0, INT64_MAX},
    {"max_tokens", &ChatSettings::max_tokens, 1, INT32_MAX},
};

// The value, or Error{kBadInput} that says what the setting may be.
template <class Read>
auto read_setting(std::string_view name, const std::string& value, const std::string& allowed,
                  bool resets, Read&& read) {
  try {
    return read();
  } catch (const Error&) {
    fail(ErrorKind::kBadInput, "{} is {}; allowed: {}{}", name, value, allowed,
         resets ? ", or default" : "");
  }
}

double seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

double rate(double count, double time_s) {
  return time_s > 0 ? count / time_s : 0;
}

}  // namespace

void ChatSettings::set(std::string_view name, const std::string& value, bool resets) {
  const bool reset = resets && value == "default";
  for (const NumberSetting& s : kNumbers)
    if (s.name == name) {
      if (reset)
        this->*s.field = std::nullopt;
      else
        this->*s.field =
            read_setting(name, value,
                         s.low > 0 && s.low < 1e-6 ? fmt::format("above 0, to {}", s.high)
                                                   : fmt::format("{} to {}", s.low, s.high),
                         resets, [&] { return option_parse::number(value, s.low, s.high); });
      return;
    }
  for (const WholeSetting& s : kWholes)
    if (s.name == name) {
      if (reset)
        this->*s.field = std::nullopt;
      else
        this->*s.field = read_setting(name, value, fmt::format("{} to {}", s.low, s.high), resets,
                                      [&] { return option_parse::integer(value, s.low, s.high); });
      return;
    }
  if (name == "system") {
    system = reset ? "" : value;
  } else if (name == "think") {
    if (reset)
      think = std::nullopt;
    else
      think = read_setting(name, value, "on, off", resets,
                           [&] { return option_parse::boolean(value); });
  } else {
    fail(ErrorKind::kBadInput,
         "there is no setting '{}'; there are temperature, top_p, top_k, min_p, "
         "repetition_penalty, seed, "
         "max_tokens, system, "
         "think",
         name);
  }
}

std::string ChatSettings::describe() const {
  std::string text;
  const Json values = json();
  for (const auto& [key, value] : values.items())
    text += fmt::format("  {:<20}{}\n", key,
                        value.is_string() ? value.get<std::string>() : dump_json(value));
  return text.empty() ? "  nothing: the model's own defaults\n" : text;
}

Json ChatSettings::json() const {
  Json out = Json::object();
  for (const NumberSetting& s : kNumbers)
    if (this->*s.field) out[s.name] = *(this->*s.field);
  for (const WholeSetting& s : kWholes)
    if (this->*s.field) out[s.name] = *(this->*s.field);
  if (!system.empty()) out["system"] = system;
  if (think) out["think"] = *think;
  return out;
}

ChatSettings ChatSettings::from_json(const Json& json) {
  require(json.is_object(), "settings are no object");
  ChatSettings out;
  for (const auto& [key, value] : json.items())
    out.set(key, value.is_string() ? value.get<std::string>() : dump_json(value));
  return out;
}

SamplingParams ChatSettings::sampling(const GenerationConfig& model, bool use_model) const {
  const auto pick = [&](const std::optional<double>& own, const std::optional<double>& of_model,
                        double otherwise) {
    return static_cast<float>(own.value_or(use_model ? of_model.value_or(otherwise) : otherwise));
  };
  SamplingParams params;
  params.temperature =
      pick(temperature, model.temperature, use_model && model.do_sample == false ? 0.0 : 1.0);
  params.top_p = pick(top_p, model.top_p, 1);
  params.min_p = pick(min_p, model.min_p, 0);
  params.repetition_penalty = pick(repetition_penalty, model.repetition_penalty, 1);
  params.top_k = static_cast<int>(
      top_k.value_or(use_model && model.top_k.value_or(0) > 0 ? *model.top_k : -1));
  if (params.top_k == 0) params.top_k = -1;
  params.seed = seed ? static_cast<std::uint64_t>(*seed) : std::random_device{}();
  params.stop_token_ids.assign(model.eos_token_ids.begin(), model.eos_token_ids.end());
  return params;
}

std::string ChatTiming::describe() const {
  const int computed = prompt_tokens - cached_tokens;
  std::string text =
      fmt::format("prompt  {:>6} tokens, {} of them cached, {:.2f} s, {:.1f} tokens/s\n",
                  prompt_tokens, cached_tokens, prompt_s, rate(computed, prompt_s));
  return text + fmt::format("answer  {:>6} tokens, {:.2f} s, {:.1f} tokens/s\n", generated_tokens,
                            decode_s, rate(generated_tokens - 1, decode_s));
}

ChatSession::ChatSession(std::shared_ptr<const ServedModel> model, bool use_model_defaults)
    : model_(std::move(model)), use_model_defaults_(use_model_defaults) {}

// What the engine has sent. The sink may outlive the call that waits.
struct ChatSession::Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::int32_t> tokens;  // guarded by mutex, as all below
  FinishReason finish = FinishReason::kNone;
  Fault error;
  int prompt_tokens = 0, cached_tokens = 0, generated = 0;
  Clock::time_point first, last;

  void take(Event&& event) {
    std::lock_guard lock(mutex);
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    if (!event.tokens.empty()) {
      last = Clock::now();
      if (generated == 0) first = last;
      generated += static_cast<int>(event.tokens.size());
    }
    prompt_tokens = std::max(prompt_tokens, event.prompt_tokens);
    cached_tokens = std::max(cached_tokens, event.cached_tokens);
    if (event.finish != FinishReason::kNone) {
      finish = event.finish;
      error = event.error;
    }
    changed.notify_all();
  }
};

Result<ChatPrompt> ChatSession::prompt_for(const Json& messages) const {
  if (!has_template()) {
    // A model that only continues text gets the last message as it is.
    ChatPrompt prompt;
    prompt.text = messages.back()["content"].get<std::string>();
    prompt.ids = model_->tokenizer->encode(prompt.text);
    return prompt;
  }
  Json body = {{"messages", Json::array()}};
  if (!settings.system.empty())
    body["messages"].push_back({{"role", "system"}, {"content", settings.system}});
  for (const Json& message : messages) body["messages"].push_back(message);
  if (settings.think == false) body["reasoning_effort"] = "none";
  if (settings.think == true)
    body["chat_template_kwargs"] = {{"enable_thinking", true}, {"thinking", true}};
  return read_chat_prompt(*model_, body);
}

Result<ChatSession::Reply> ChatSession::say(const std::string& message,
                                            const std::function<void(const ChatDelta&)>& show,
                                            const std::function<bool()>& stop) {
  Json messages = messages_;
  messages.push_back({{"role", "user"}, {"content", message}});
  Result<ChatPrompt> prompt = prompt_for(messages);
  if (!prompt) return prompt.fault();

  GenerationFields fields;
  fields.grammar = grammar;
  if (has_template()) allow_thoughts(*model_, *prompt, fields);

  ChatOutputSettings output;
  if (has_template()) output.reasoning_parser = model_->reasoning_parser;
  output.prompt = prompt->text;
  output.thinking_off = prompt->thinking_off;
  ChatOutput splitter(output);
  Detokenizer detokenizer(*model_->tokenizer, true, parser_tokens(*model_->tokenizer, output));

  Engine& engine = *model_->engine;
  Request request;
  request.prompt_ids = std::move(prompt->ids);
  request.params = settings.sampling(engine.generation_config(), use_model_defaults_);
  if (settings.max_tokens) request.max_new_tokens = static_cast<int>(*settings.max_tokens);
  if (fields.grammar) {
    Result<ConstraintMaker> maker =
        model_->grammars->maker(fields.grammar->source, request.params.stop_token_ids);
    if (!maker) return maker.fault();
    request.make_constraint = std::move(*maker);
  }
  auto inbox = std::make_shared<Inbox>();
  const Clock::time_point start = Clock::now();
  const Result<std::uint64_t> id =
      engine.submit(std::move(request), [inbox](Event&& event) { inbox->take(std::move(event)); });
  if (!id) return id.fault();

  Reply reply;
  const auto add = [&](ChatDelta&& delta) {
    reply.content += delta.content;
    reply.reasoning += delta.reasoning;
    if (!delta.empty()) show(delta);
  };
  for (bool over = false; !over;) {
    std::vector<std::int32_t> tokens;
    {
      std::unique_lock lock(inbox->mutex);
      inbox->changed.wait_for(lock, std::chrono::milliseconds(50), [&] {
        return !inbox->tokens.empty() || inbox->finish != FinishReason::kNone;
      });
      tokens.swap(inbox->tokens);
      over = inbox->finish != FinishReason::kNone;
    }
    if (!reply.interrupted) {
      ChatDelta delta;
      for (const std::int32_t token : tokens) splitter.push(detokenizer.push(token), delta);
      add(std::move(delta));
    }
    if (!over && !reply.interrupted && stop()) {
      reply.interrupted = true;
      engine.abort(*id);
    }
  }
  if (inbox->finish == FinishReason::kError) return inbox->error;
  ChatDelta rest;
  splitter.push(detokenizer.finish_answer(), rest);
  splitter.finish(rest);
  add(std::move(rest));
  reply.cut = inbox->finish == FinishReason::kLength;
  reply.timing = {inbox->prompt_tokens, inbox->cached_tokens, inbox->generated, 0, 0};
  if (inbox->generated > 0) {
    reply.timing.prompt_s = seconds(inbox->first - start);
    reply.timing.decode_s = seconds(inbox->last - inbox->first);
  }
  messages_ = std::move(messages);
  Json answer = {{"role", "assistant"}, {"content", reply.content}};
  if (!reply.reasoning.empty()) answer["reasoning_content"] = reply.reasoning;
  messages_.push_back(std::move(answer));
  return reply;
}

std::string ChatSession::take_back() {
  std::string message;
  while (!messages_.empty() && message.empty()) {
    const Json& last = messages_.back();
    if (last["role"] == "user" && last["content"].is_string())
      message = last["content"].get<std::string>();
    messages_.erase(messages_.size() - 1);
  }
  return message;
}

Json ChatSession::save() const {
  return {{"model", model_->names[0]}, {"settings", settings.json()}, {"messages", messages_}};
}

void ChatSession::load(const Json& saved) {
  require(saved.is_object() && saved.contains("messages") && saved["messages"].is_array(),
          "it holds no conversation");
  for (const Json& message : saved["messages"])
    require(message.is_object() && message.contains("role") && message["role"].is_string() &&
                message.contains("content") && message["content"].is_string(),
            "a message has no role or no content");
  settings = ChatSettings::from_json(saved.value("settings", Json::object()));
  messages_ = saved["messages"];
}

}  // namespace sluice
