// server/api/request_fields.h: any body as the fields of a request. The first byte selects the
// interface. Accepted fields can be passed to the engine; a refusal names the field.
#include "base/json.h"
#include "base/log.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "server/api/request_fields.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  if (input.empty()) return;
  set_log_level(LogLevel::kOff);
  constexpr FieldApi kApis[] = {kChatApi, kCompletionApi, kNativeApi, kSamplingApi};
  const FieldApi api = kApis[static_cast<unsigned char>(input[0]) % std::size(kApis)];
  const Result<Json> body = parse_json(input.substr(1));
  if (!body.ok() || !body->is_object()) return;
  constexpr std::int64_t kVocab = 4096;
  GenerationFields fields;
  if (const std::optional<Fault> fault = read_fields(*body, api, "", {kVocab}, fields)) {
    must_hold(fault->status >= 400 && fault->status < 500, "a bad field is the client's fault");
    must_hold(!fault->code.empty() && !fault->message.empty() && !fault->param.empty(),
              "a fault says what and where");
    return;
  }
  for (const auto& [id, bias] : fields.logit_bias)
    must_hold(id >= 0 && id < kVocab && bias == bias, "biased ids are tokens");
  for (const std::int32_t id : fields.stop_token_ids)
    must_hold(id >= 0 && id < kVocab, "stop ids are tokens");
  engine_request(fields, nullptr);
}

std::vector<std::string> seeds() {
  const std::string texts[] = {
      R"({"model":"m","temperature":0.7,"top_p":0.9,"top_k":40,"min_p":0.1,"n":2,"max_tokens":16,)"
      R"("stop":["a","b"],"seed":7,)"
      R"("frequency_penalty":0.5,"presence_penalty":-0.5,"repetition_penalty":1.1,)"
      R"("logit_bias":{"5":1.5,"4095":-100},"stream":true,)"
      R"("stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":3,"user":"u",)"
      R"("stop_token_ids":[1,2],"min_tokens":2})",
      R"({"max_new_tokens":8,"temperature":0,"ignore_eos":true,"skip_special_tokens":false,)"
      R"("no_stop_trim":true,"sampling_seed":-3})",
      R"({"tools":[],"tool_choice":"auto","response_format":{"type":"text"},)"
      R"("reasoning_effort":"low","chat_template_kwargs":{"a":1},)"
      R"("add_generation_prompt":true,"continue_final_message":false,"cache_salt":"s",)"
      R"("priority":3,"best_of":1,"echo":true,"logprobs":4})",
      R"({"return_logprob":true,"logprob_start_len":0,"top_logprobs_num":5,"rid":"r",)"
      R"("stream":false,"guided_json":null,"stop":"x"})"};
  std::vector<std::string> all;
  for (char api = 0; api < 4; ++api)
    for (const std::string& text : texts) all.push_back(api + text);
  return all;
}

}  // namespace sluice::fuzz
