// A conversation with a model in this process: what `sluice run` keeps and does, without the
// terminal.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "batch/sampling_params.h"
#include "server/api/chat_prompt.h"
#include "server/api/request_fields.h"
#include "server/core/server_state.h"
#include "text/parsers/chat_output.h"

namespace sluice {

// What /set changes. An empty optional leaves the model's own default.
struct ChatSettings {
  std::string system;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k, seed, max_tokens;
  std::optional<bool> think;

  // Sets one by name; "default" takes it back, unless it is a flag's value (`resets` is false).
  // Error{kBadInput} says what is allowed.
  void set(std::string_view name, const std::string& value, bool resets = true);
  // One line each, what is set.
  std::string describe() const;
  Json json() const;
  static ChatSettings from_json(const Json& json);

  SamplingParams sampling(const GenerationConfig& model, bool use_model_defaults) const;
};

struct ChatTiming {
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double prompt_s = 0;           // from the request to the first token
  double decode_s = 0;           // from the first token to the last
  std::string describe() const;  // lines for --verbose
};

class ChatSession {
 public:
  ChatSession(std::shared_ptr<const ServedModel> model, bool use_model_defaults);

  struct Reply {
    std::string content, reasoning;
    bool interrupted = false;
    bool cut = false;  // the limit of tokens ended it
    ChatTiming timing;
  };
  // Adds the message, streams the answer to `show`, and adds it. `stop` is asked 20 times a second;
  // true ends the answer, and what has come counts. A fault leaves the conversation as it was.
  Result<Reply> say(const std::string& message, const std::function<void(const ChatDelta&)>& show,
                    const std::function<bool()>& stop);

  void clear() { messages_ = Json::array(); }
  // Forgets the last message of the user and what follows, and returns it; empty: there is none.
  std::string take_back();
  // Messages and settings, as /save writes them. load() throws Error{kBadInput}.
  Json save() const;
  void load(const Json& saved);
  const Json& messages() const { return messages_; }
  bool has_template() const { return model_->chat_template != nullptr; }
  const ServedModel& model() const { return *model_; }

  ChatSettings settings;
  std::optional<GrammarField> grammar;  // what each answer obeys

 private:
  struct Inbox;
  Result<ChatPrompt> prompt_for(const Json& messages) const;

  std::shared_ptr<const ServedModel> model_;
  bool use_model_defaults_;
  Json messages_ = Json::array();  // without the system message
};

}  // namespace sluice
