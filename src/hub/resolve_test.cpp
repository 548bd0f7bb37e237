#include "hub/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kOther(40, 'b');

std::string error_of(std::string_view model, std::string_view revision,
                     const HubEnvironment& environment) {
  try {
    resolve_model(model, revision, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}

TEST(Resolve, TheCacheIsWhereTheVariablesSay) {
  HubEnvironment e;
  e.home = "/home/u";
  EXPECT_EQ(e.cache_directory(), "/home/u/.cache/huggingface/hub");
  e.xdg_cache_home = "/x";
  EXPECT_EQ(e.cache_directory(), "/x/huggingface/hub");
  e.hf_home = "~/hf";
  EXPECT_EQ(e.cache_directory(), "/home/u/hf/hub");
  e.huggingface_hub_cache = "/old";
  EXPECT_EQ(e.cache_directory(), "/old");
  e.hf_hub_cache = "/new";
  EXPECT_EQ(e.cache_directory(), "/new");
}

TEST(Resolve, GgufFiles) {
  const TestFolder folder;
  HubEnvironment e;
  e.hf_hub_cache = folder.path();
  const std::string at = folder.path() + "/";
  folder.write("a/one (1).GGUF", "");
  folder.write("a/readme.txt", "");
  EXPECT_EQ(resolve_model(at + "a/one (1).GGUF", "", e).directory, at + "a/one (1).GGUF");
  EXPECT_EQ(resolve_model(at + "a", "", e).directory, at + "a/one (1).GGUF");
  EXPECT_EQ(resolve_model(at + "a", "", e).repo_id, "");
  folder.write("a/two.gguf", "");
  EXPECT_EQ(error_of(at + "a", "", e),
            "the directory " + at + "a has no config.json and 2 GGUF files; give one of them: " +
                at + "a/one (1).GGUF, " + at + "a/two.gguf");
  folder.write("a/config.json", "{}");
  EXPECT_EQ(resolve_model(at + "a", "", e).directory, at + "a");
  EXPECT_EQ(error_of(at + "absent.gguf", "", e), "there is no file " + at + "absent.gguf");
  folder.write("b/readme.txt", "");
  EXPECT_EQ(error_of(at + "b", "", e),
            "the directory " + at + "b has no config.json and no .gguf file, so it is no model");

  folder.write("models--org--q/refs/main", kCommit);
  folder.write("models--org--q/snapshots/" + kCommit + "/q.gguf", "");
  EXPECT_EQ(resolve_model("org/q", "", e).directory,
            at + "models--org--q/snapshots/" + kCommit + "/q.gguf");
  EXPECT_EQ(resolve_model("org/q", "", e).commit, kCommit);
  EXPECT_THAT(error_of("org/q:Q8_0", "", e),
              HasSubstr("has no GGUF file with \"Q8_0\" in its name"));
  EXPECT_THAT(error_of("org/q/q.gguf", "", e),
              HasSubstr("name a GGUF file by a part of its name: org/q:q"));
  folder.write("models--org--q/snapshots/" + kCommit + "/Q8_0/q-Q8_0-00001-of-00001.gguf", "");
  EXPECT_EQ(resolve_model("org/q:Q8_0", "", e).directory,
            at + "models--org--q/snapshots/" + kCommit + "/Q8_0/q-Q8_0-00001-of-00001.gguf");
}

TEST(Resolve, ASlipOfAPathIsGuessed) {
  const TestFolder folder;
  const std::string at = folder.path() + "/";
  folder.write("models/tiny-model/config.json", "{}");
  folder.write("models/other.gguf", "");
  folder.write("models/notes/readme", "");
  EXPECT_EQ(near_local_model(at + "modles/tiny-model"), at + "models/tiny-model");
  EXPECT_EQ(near_local_model(at + "models/tiny-modl"), at + "models/tiny-model");
  EXPECT_EQ(near_local_model(at + "models/othr.gguf"), at + "models/other.gguf");
  EXPECT_EQ(near_local_model(at + "models/tiny-model"), std::nullopt);  // no slip
  EXPECT_EQ(near_local_model(at + "models/note"), std::nullopt);        // no model
  EXPECT_EQ(near_local_model(at + "Qwen/Qwen3-0.6B"), std::nullopt);
  const auto refusal = [](const std::string& model) -> std::string {
    try {
      refuse_slip(model, "wrong");
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(refusal(at + "modles/tiny-model"), "wrong; did you mean " + at + "models/tiny-model?");
  EXPECT_EQ(refusal(at + "modles/tiny-model@main"), "");
  EXPECT_EQ(refusal("Qwen/Qwen3-0.6B"), "");
  HubEnvironment e;
  e.hf_hub_cache = folder.path();
  EXPECT_THAT(error_of(at + "models/notes/readme", "", e), HasSubstr("readme is a file"));
}

TEST(Resolve, RepositoriesOfTheCacheAndDirectories) {
  const TestFolder cache;
  const std::string repo = "models--org--tiny";
  cache.write(repo + "/refs/main", kCommit);
  cache.write(repo + "/refs/v1.0", kOther + "\n");
  cache.write(repo + "/refs/refs/pr/1", kOther);
  cache.write(repo + "/refs/gone", std::string(40, 'c'));
  cache.write(repo + "/refs/bad", "../../../etc");
  cache.write(repo + "/snapshots/" + kCommit + "/config.json", "{}");
  cache.write(repo + "/snapshots/" + kOther + "/config.json", "{}");
  cache.write("models--gpt/refs/main", kCommit);
  cache.write("models--gpt/snapshots/" + kCommit + "/config.json", "{}");
  HubEnvironment e;
  e.hf_hub_cache = cache.path();
  const std::string snapshots = cache.path() + "/" + repo + "/snapshots/";

  const ResolvedModel main = resolve_model("org/tiny", "", e);
  EXPECT_EQ(main.directory, snapshots + kCommit);
  EXPECT_EQ(main.repo_id, "org/tiny");
  EXPECT_EQ(main.commit, kCommit);
  EXPECT_EQ(resolve_model("org/tiny@v1.0", "", e).commit, kOther);
  EXPECT_EQ(resolve_model("org/tiny", "v1.0", e).commit, kOther);
  EXPECT_EQ(resolve_model("org/tiny@v1.0", "v1.0", e).commit, kOther);
  EXPECT_EQ(resolve_model("org/tiny", "refs/pr/1", e).commit, kOther);
  EXPECT_EQ(resolve_model("org/tiny", kOther, e).commit, kOther);
  EXPECT_EQ(resolve_model("gpt", "", e).commit, kCommit);

  const ResolvedModel local = resolve_model(snapshots + kCommit, "", e);
  EXPECT_EQ(local.directory, snapshots + kCommit);
  EXPECT_EQ(local.repo_id, "");

  const struct {
    std::string model, revision;
    std::vector<std::string> says;
  } rows[] = {
      {"org/absent", "", {"models--org--absent", cache.path(), "sluice pull org/absent, or"}},
      {"org/tiny", "dev", {"revision dev", "refs/dev", "sluice pull org/tiny --revision dev"}},
      {"org/tiny", "gone", {"no complete copy"}},
      {"org/tiny", std::string(40, 'd'), {"no complete copy"}},
      {"org/tiny", "bad", {"40 hex digits"}},
      {"org/tiny@v1.0", "main", {"two revisions"}},
      {"org/tiny", "../main", {"not a branch"}},
      {"org/tiny", "refs//1", {"not a branch"}},
      {"org/tiny@", "", {"neither"}},
      {"../org/tiny", "", {"neither"}},
      {"org/../x", "", {"neither"}},
      {"a/b/c", "", {"neither"}},
      {"/absent/model", "", {"neither"}},
      {"org/ti--ny", "", {"neither"}},
      {"-org/tiny", "", {"neither"}},
      {"org/tiny.", "", {"neither"}},
      {"org/" + std::string(97, 'x'), "", {"neither"}},
      {"", "", {"no model is given"}},
      {cache.path(), "", {"no config.json"}},
  };
  for (const auto& row : rows)
    for (const std::string& part : row.says)
      EXPECT_THAT(error_of(row.model, row.revision, e), HasSubstr(part)) << row.model;
}

TEST(GenerationConfig, UnionOfStopsAndRanges) {
  const std::string tiny = source_dir() + "/models/sluice-tiny";
  const ModelConfig model = load_model_config(tiny);
  const GenerationConfig c = load_generation_config(tiny, model);
  EXPECT_EQ(c.temperature, 0.6);
  EXPECT_EQ(c.top_p, 0.95);
  EXPECT_EQ(c.do_sample, true);
  EXPECT_FALSE(c.top_k);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(0, 4, 6));
  EXPECT_FALSE(c.bos_token_id);
  EXPECT_EQ(c.pad_token_id, 0);
  EXPECT_THAT(
      parse_generation_config(R"({"eos_token_id":5,"bos_token_id":9})", "g", model).eos_token_ids,
      ElementsAre(0, 4, 5, 6));
  const TestFolder empty;
  EXPECT_THAT(load_generation_config(empty.path(), model).eos_token_ids, ElementsAre(0, 4, 6));

  const std::pair<const char*, const char*> rows[] = {
      {R"({"temperature":-1})", "temperature is -1; it must be a number from 0 to 100"},
      {R"({"temperature":NaN})", "temperature is \"NaN\""},
      {R"({"top_p":1.5})", "top_p is 1.5"},
      {R"({"top_k":1e9})", "top_k is 1000000000"},
      {R"({"do_sample":"yes"})", "do_sample"},
      {R"([])", "object"},
  };
  for (const auto& [text, says] : rows) {
    try {
      parse_generation_config(text, "generation_config.json", model);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace sluice
