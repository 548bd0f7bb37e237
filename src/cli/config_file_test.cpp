#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/folder.h"
#include "cli/verbs.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fault(std::string_view text) {
  try {
    parse_config(text, "c.yaml");
  } catch (const Error& error) {
    return error.message();
  }
  ADD_FAILURE() << "read: " << text;
  return "";
}

// `sluice serve --config FILE words...` with this text in the file.
Arguments serve_with(std::string_view text, std::vector<const char*> words = {}) {
  const TestFolder folder;
  folder.write("config.yaml", std::string(text));
  const std::string path = folder.path() + "/config.yaml";
  words.insert(words.begin(), {"--config", path.c_str()});
  for (const Verb& verb : all_verbs())
    if (verb.name == "serve") return parse_arguments(verb, words, false);
  return {};
}

TEST(Config, KeysOfBothEnginesWithEitherSeparator) {
  const Options o = serve_with(
                        "# vLLM's names\n"
                        "model: org/name\n"
                        "max_model_len: 32k\n"
                        "tensor-parallel-size: 1\n"
                        "served-model-name: [one, two]\n"
                        "speculative_config: {method: ngram, num_speculative_tokens: 3}\n"
                        "allowed-origins: ['https://a.example', 'https://b.example']\n"
                        "# SGLang's\n"
                        "mem-fraction-static: 0.5\n"
                        "disable_radix_cache: true\n"
                        "skip-server-warmup: false\n"
                        "port: 8000\n")
                        .options;
  EXPECT_EQ(o.model, "org/name");
  EXPECT_EQ(o.context_length, 32000);
  EXPECT_THAT(o.served_model_names, ElementsAre("one", "two"));
  EXPECT_EQ(o.speculative_config, R"({"method":"ngram","num_speculative_tokens":3})");
  EXPECT_THAT(o.allowed_origins, ElementsAre("https://a.example", "https://b.example"));
  EXPECT_EQ(o.mem_fraction_static, 0.5);
  EXPECT_TRUE(o.disable_radix_cache);
  EXPECT_EQ(o.port, 8000);
}

TEST(Config, TheCommandLineWins) {
  const std::string text = "model: of-the-file\nport: 1\nhost: 0.0.0.0\napi-key: [a, b]\n";
  Arguments a = serve_with(text, {"--port", "2", "--api-key", "c"});
  EXPECT_EQ(a.options.port, 2);
  EXPECT_EQ(a.options.host, "0.0.0.0");
  EXPECT_THAT(a.options.api_keys, ElementsAre("c"));
  EXPECT_EQ(model_options(a).model, "of-the-file");
  EXPECT_TRUE(a.was_given("host"));
  EXPECT_TRUE(was_given(serve_with("tp-size: 1\n").options, "tp-size")) << "the default is given";
  EXPECT_EQ(model_options(serve_with(text, {"another"})).model, "another");
  EXPECT_EQ(model_options(serve_with(text, {"--model", "another"})).model, "another");
  EXPECT_THAT(serve_with(text).options.api_keys, ElementsAre("a", "b"));
}

TEST(Config, FaultsNameTheFileAndTheKey) {
  EXPECT_EQ(fault("max-model-length: 5\n"),
            "c.yaml: unknown option `max-model-length`; did you mean `max-model-len`?");
  EXPECT_THAT(fault("zebra: 1\n"), HasSubstr("`sluice serve --help` lists the options"));
  EXPECT_EQ(fault("context_length: 5\nmax-model-len: 6\n"),
            "c.yaml: `context_length` and `max-model-len` are the same option; keep one of them");
  EXPECT_THAT(fault("port:\n"), HasSubstr("c.yaml, `port`: it has no value"));
  EXPECT_THAT(fault("api-key: [[a]]\n"), HasSubstr("words or numbers"));
  EXPECT_THAT(fault("- port\n"), HasSubstr("expected options by name"));
  EXPECT_THAT(fault("port: [\n"), HasSubstr("c.yaml, line "));
  EXPECT_THROW(read_config("/nowhere/c.yaml"), Error);
  try {
    serve_with("port: 70000\n");
    ADD_FAILURE() << "a port out of range was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr(".yaml: --port: 70000 is out of"));
  }
  EXPECT_TRUE(parse_config("", "c.yaml").empty());
}

}  // namespace
}  // namespace sluice
