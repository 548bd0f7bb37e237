// Drafts of heads and of small models through the whole engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

// An ordinary model drafts. That of equal weights is nearly always right.
TEST(Speculation, DraftModelsChangeNothing) {
  const std::string models = source_dir() + "/tests/golden/models/";
  for (const auto& [target, draft] :
       {std::pair{"qwen3-moe", "llama-llama3-tied"}, std::pair{"mistral-swa", "mistral-swa"},
        std::pair{"deepseek-v32", "qwen3"}}) {
    SCOPED_TRACE(target);
    Options options = options_for(target);
    const TestFolder folder;
    std::string path = models + draft;
    if (std::string(target) == draft) {  // the directory itself is refused
      path = folder.path() + "/model";
      std::filesystem::create_directory_symlink(models + draft, path);
      EXPECT_THROW((void)Engine::create(with_draft(options, "STANDALONE", path)), Error);
      std::filesystem::remove(path);
      std::filesystem::create_directory(path);
      for (const auto& file : std::filesystem::directory_iterator(models + draft))
        std::filesystem::copy(file.path(), path);
    }
    const std::vector<Request> requests = greedy_requests(7);
    const Outcome plain = outcome_of(options, requests);
    const Outcome drafted = outcome_of(with_draft(options, "STANDALONE", path), requests);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.stats.drafted_tokens, 200u);
    if (std::string(target) == draft) {
      EXPECT_EQ(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
    }
    options.drafts_as_rows = true;
    expect_equal(outcome_of(with_draft(options, "STANDALONE", path), requests), plain);
    options = with_little_memory(options);
    std::vector<Request> longer = greedy_requests(9);
    for (Request& request : longer) request.max_new_tokens += 60;
    const Outcome pressed = outcome_of(with_draft(options, "STANDALONE", path), longer);
    expect_equal(pressed, outcome_of(options, longer));
    EXPECT_GT(pressed.stats.retracted, 0u);
  }
}

TEST(Speculation, DraftsThatDoNotFitAreRefused) {
  const std::string models = source_dir() + "/tests/golden/models/";
  for (const auto& [method, draft, message] :
       {std::tuple{"STANDALONE", source_dir() + "/models/sluice-tiny",
                   "the draft's vocab_size is 4096, and that of the target 320"},
        std::tuple{"STANDALONE", models + "qwen3", "is the target itself"},
        std::tuple{"EAGLE3", models + "llama-llama3-tied",
                   "holds no draft of EAGLE3; an ordinary model drafts with "
                   "--speculative-algorithm STANDALONE"},
        std::tuple{"EAGLE", models + "llama-llama3-tied", "lacks its draft layer"},
        std::tuple{"DFLASH", models + "llama-llama3-tied",
                   "holds no draft of DFLASH; an ordinary model"},
        std::tuple{"EAGLE", models + "mixtral", "is no EAGLE head"}})
    try {
      (void)Engine::create(with_draft(options_for("qwen3"), method, draft));
      ADD_FAILURE() << draft;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
    }
}

// Overwrites a tensor of a copied checkpoint by NaN: all bits are set, whatever its type.
void damage(const std::string& directory, const std::string& ending) {
  const std::string path = directory + "/model.safetensors";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  int count = 0;
  const Json header = parse_json_or_throw(text, path);
  for (const auto& [name, info] : header.items()) {
    if (!name.ends_with(ending)) continue;
    const auto begin = info["data_offsets"][0].get<std::size_t>(),
               end = info["data_offsets"][1].get<std::size_t>();
    file.seekp(static_cast<std::streamoff>(sizeof header_bytes + header_bytes + begin));
    file << std::string(end - begin, '\xff');
    ++count;
  }
  ASSERT_EQ(count, 1) << ending;
}

// A target says so by failing the request; a draft's requests are answered.
TEST(Speculation, DraftsThatAreNotFiniteAreSaidOnce) {
  const auto as_rows = [](Options options) {
    options.drafts_as_rows = true;
    return options;
  };
  const auto in_rounds = [&](Options options) {
    options.steps_in_flight = 2;
    return as_rows(options);
  };
  const auto as_trees = [](Options options) {
    options.speculative_eagle_topk = 4;
    options.speculative_num_steps = 3;
    options.speculative_num_draft_tokens = 16;
    return options;
  };
  const TestFolder folder;
  for (const char* model : {"llama-llama3-tied", "deepseek-v3"})
    std::filesystem::copy(source_dir() + "/tests/golden/models/" + model,
                          folder.path() + "/" + model, std::filesystem::copy_options::recursive);
  const std::string draft = folder.path() + "/llama-llama3-tied",
                    target = folder.path() + "/deepseek-v3";
  damage(draft, "model.norm.weight");
  damage(target, "shared_head.norm.weight");
  Options own = options_for("deepseek-v3");
  own.model = target;
  const Options chains = with_draft(options_for("qwen3-moe"), "STANDALONE", draft),
                layer = with_nextn(own);
  const std::string of_path = "--speculative-draft-model-path: " + draft,
                    of_model = "the model's own draft layer";
  const std::vector<Request> requests = greedy_requests(3);
  for (const auto& [options, name] :
       {std::pair{chains, of_path}, std::pair{as_rows(chains), of_path}, std::pair{layer, of_model},
        std::pair{in_rounds(layer), of_model}, std::pair{as_trees(layer), of_model}}) {
    const Outcome wanted = outcome_of(name == of_path ? options_for("qwen3-moe") : own, requests);
    set_log_level(LogLevel::kWarning);
    ::testing::internal::CaptureStderr();
    const Outcome found = outcome_of(options, requests);
    const std::string said = ::testing::internal::GetCapturedStderr();
    expect_equal(found, wanted);
    EXPECT_EQ(found.stats.drafted_tokens, 0u);
    const std::string text = name + ": its logits are not finite";
    const std::size_t first = said.find(text);
    ASSERT_NE(first, std::string::npos) << said;
    EXPECT_EQ(said.find("logits are not finite", first + text.size()), std::string::npos) << said;
  }
}

// A damaged draft is told from a damaged target, and a draft from a model.
TEST(Speculation, ErrorsOfDraftsNameTheDraft) {
  const std::string head = R"("architectures": ["LlamaForCausalLMEagle3"], )";
  for (const auto& [method, file, text, message] :
       {std::tuple{"EAGLE3", "config.json", "{" + head + R"("model_type": 5})",
                   "config.json: model_type is 5; it must be a string"},
        std::tuple{"EAGLE3", "config.json", "{" + head + R"("eagle_config": 7})",
                   "eagle_config is no JSON object"},
        std::tuple{"EAGLE3", "config.json", std::string("{x"), "the text is not valid JSON"},
        std::tuple{"STANDALONE", "tokenizer.json", std::string(R"({"added_tokens": 5})"),
                   "added_tokens is no list"},
        std::tuple{"STANDALONE", "tokenizer.json", std::string(R"({"added_tokens": [5]})"),
                   "is no object with id and content"},
        std::tuple{"STANDALONE", "model.safetensors", std::string(), "model.safetensors"}}) {
    const TestFolder folder;
    std::filesystem::copy(source_dir() + "/models/sluice-tiny", folder.path());
    folder.write(file, text);
    Options options = options_for("");
    options.model = source_dir() + "/models/sluice-tiny";
    try {
      (void)Engine::create(with_draft(options, method, folder.path()));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_THAT(error.message(),
                  ::testing::StartsWith("--speculative-draft-model-path: " + folder.path()));
      EXPECT_THAT(error.message(), ::testing::HasSubstr(message));
    }
  }
  const TestFolder folder;
  folder.write("config.json", "{" + head + "\"model_type\": \"llama\"}");
  Options options = options_for("");
  options.model = folder.path();
  try {
    (void)Engine::create(options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), ::testing::HasSubstr("holds a draft of EAGLE3"));
  }
}

// Their configurations say it; weights are not read.
TEST(Speculation, DraftsOfOtherMethodsSayWhichOne) {
  constexpr std::pair<const char*, const char*> kDrafts[] = {
      {"LlamaForCausalLMEagle", "EAGLE"},
      {"LlamaForCausalLMEagle3", "EAGLE3"},
      {"Eagle3DeepseekV2ForCausalLM", "EAGLE3"},
      {"DFlashDraftModel", "DFLASH"}};
  for (const auto& [architecture, does] : kDrafts)
    for (const std::string method : {"EAGLE", "EAGLE3", "DFLASH", "STANDALONE"}) {
      if (method == does) continue;
      const TestFolder folder;
      folder.write("config.json", fmt::format(R"({{"architectures": ["{}"]}})", architecture));
      try {
        (void)Engine::create(with_draft(options_for("qwen3"), method.c_str(), folder.path()));
        ADD_FAILURE() << architecture << " as " << method;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
        const std::string says =
            fmt::format("drafts with --speculative-algorithm {}, not with {}", does, method);
        EXPECT_NE(error.message().find(says), std::string::npos) << error.message();
      }
    }
}

// Latents of the draft and heads of the target, both in bytes.
TEST(Speculation, DraftsWithLatentsInBytesChangeNothing) {
  for (const char* dtype : {"int8", "fp8_e4m3"}) {
    Options options = options_for("mistral-swa");
    options.kv_cache_dtype = dtype;
    const std::vector<Request> requests = greedy_requests(5);
    const Outcome drafted = outcome_of(
        with_draft(options, "STANDALONE", source_dir() + "/tests/golden/models/deepseek-v2-lite"),
        requests);
    expect_equal(drafted, outcome_of(options, requests));
    EXPECT_GT(drafted.stats.drafted_tokens, 100u);
  }
}

// Heads lie beside the repository on machines of developers.
TEST(Speculation, HeadsChangeNothing) {
  const auto recorded =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation";
  if (!std::filesystem::exists(recorded)) GTEST_SKIP() << recorded << " is not there";
  for (const auto& [method, target, head] :
       {std::tuple{"EAGLE3", "targets/llama-8l", "families/eagle3-llama"},
        std::tuple{"EAGLE3", "targets/qwen3-7l", "families/eagle3-speculators-qwen3"},
        std::tuple{"EAGLE3", "../models/gpt-oss", "families/eagle3-gpt-oss"},
        std::tuple{"EAGLE3", "../models/glm-moe-dsa-shared-index", "families/eagle3-llama-for-mla"},
        std::tuple{"EAGLE3", "../models/glm-moe-dsa-pattern", "families/eagle3-mla"},
        std::tuple{"EAGLE", "../models/llama-plain", "families/eagle-llama"},
        std::tuple{"DFLASH", "targets/qwen3-7l", "families/dflash-qwen3"},
        std::tuple{"NEXTN", "../models/glm4-moe", ""}}) {
    SCOPED_TRACE(target);
    Options options = options_for("qwen3");
    options.model = recorded / target;
    const std::string draft = *head == 0 ? "" : (recorded / head).string();
    const std::vector<Request> requests = greedy_requests(7);
    const Outcome plain = outcome_of(options, requests);
    for (const bool as_rows : {false, true}) {
      options.drafts_as_rows = as_rows;
      const Outcome drafted = outcome_of(with_draft(options, method, draft), requests);
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.drafted_tokens, 500u);
    }
    Options adaptive = with_draft(options, method, draft);
    adaptive.speculative_adaptive = true;
    expect_equal(outcome_of(adaptive, requests), plain);
    if (draft.empty()) continue;
    options.model = source_dir() + "/models/sluice-tiny";
    try {
      (void)Engine::create(with_draft(options, method, draft));
      ADD_FAILURE() << head;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.message().find("320"), std::string::npos) << error.message();
    }
  }
}

// Blocks beside choices that are sampled, stops, prefixes that are found again, little memory, and
// requests that leave.
TEST(Speculation, BlocksComposeWithHowRequestsRun) {
  const auto recorded =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation";
  if (!std::filesystem::exists(recorded)) GTEST_SKIP() << recorded << " is not there";
  Options options = options_for("qwen3");
  options.model = recorded / "targets/qwen3-7l";
  const std::string draft = (recorded / "families/dflash-qwen3").string();
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request = greedy(prompt_of(i % 2, 70 + 15 * i), 60);
    request.num_choices = 1 + i % 3;
    request.params.temperature = i % 2 == 0 ? 0.7F : 0.0F;
    request.params.seed = 11;
    if (i == 3) request.stop = {"x"};  // see Doubled
    requests.push_back(std::move(request));
  }
  options.max_running_requests = 4;
  const Outcome plain = outcome_of(options, requests);
  expect_equal(outcome_of(with_draft(options, "DFLASH", draft), requests), plain);
  Options fewer = options;
  fewer.speculative_num_draft_tokens = 3;
  expect_equal(outcome_of(with_draft(fewer, "DFLASH", draft), requests), plain);
  fewer.speculative_num_draft_tokens = 6;
  EXPECT_THROW((void)Engine::create(with_draft(fewer, "DFLASH", draft)), Error);
  std::vector<Request> longer = greedy_requests(9);
  for (Request& request : longer) request.max_new_tokens += 60;
  const Options little = with_little_memory(options);
  const Outcome pressed = outcome_of(with_draft(little, "DFLASH", draft), longer);
  expect_equal(pressed, outcome_of(little, longer));
  EXPECT_GT(pressed.stats.retracted, 0u);
  auto engine = Engine::create(with_draft(options, "DFLASH", draft));
  for (int i = 0; i < 10; ++i) {
    Collector collector;
    const auto id = engine->submit(greedy(prompt_of(i, 40), 200), collector.sink());
    ASSERT_TRUE(id.ok());
    collector.wait_tokens(1 + i);
    engine->abort(id.value());
    collector.wait();
  }
  const Outcome after = outcome_of(with_draft(options, "DFLASH", draft), requests);
  expect_equal(after, plain);
}

}  // namespace
}  // namespace sluice
