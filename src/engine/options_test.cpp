#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace sluice {
namespace {

using testing::HasSubstr;

std::vector<std::string> names_of(const OptionRow& row) {
  std::vector<std::string> names = {std::string(row.name)};
  std::string_view rest = row.aliases;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

std::string error_of(std::string_view name, std::string_view value) {
  Options options;
  try {
    set_option(options, name, value);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Options, NamesAreUniqueAndPlain) {
  std::set<std::string> seen;
  for (const OptionRow& row : option_table()) {
    EXPECT_FALSE(row.help.empty()) << row.name;
    for (const std::string& name : names_of(row)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " occurs twice";
      EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos)
          << name;
      EXPECT_EQ(find_option(name), &row);
    }
  }
}

TEST(Options, EveryDefaultIsAllowedAndIsTheFieldsOwn) {
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(row.set != nullptr, row.effect == OptionEffect::kActive) << row.name;
    if (row.effect != OptionEffect::kActive || row.default_text.empty()) continue;
    Options options;
    EXPECT_NO_THROW(set_option(options, row.name, row.default_text)) << row.name;
  }
  // They leave every field as it is.
  Options set;
  for (const OptionRow& row : option_table())
    if (row.effect == OptionEffect::kActive && !row.default_text.empty())
      set_option(set, row.name, row.default_text);
  EXPECT_EQ(option_values(set), option_values(Options()));
  EXPECT_TRUE(given_options(set).empty());
}

// Whether the row takes the value, and says the same when asked.
bool takes(const OptionRow& row, std::string_view value) {
  Options options;
  try {
    set_option(options, row.name, value);
  } catch (const Error&) {
    return false;
  }
  return option_text(row, options) == value && row.default_text != value;
}

// A value of each row that is not its default, as option_text() spells it.
std::string other_value(const OptionRow& row) {
  if (row.type == OptionType::kFlag) return row.default_text == "true" ? "false" : "true";
  if (row.type == OptionType::kInt) {
    for (const std::string_view number : {"1024", "128", "16", "2"})
      if (takes(row, number)) return std::string(number);
  }
  if (row.type == OptionType::kFloat) return "0.25";
  if (row.type == OptionType::kList) return "one,two";
  for (const std::string_view word :
       {"both",          "cuda",
        "bfloat16",      "float8_e4m3fn",
        "int8",          "lpm",
        "native",        "isolate",
        "openai",        "warning",
        "vllm",          "mistral",
        "dummy",         "sluice",
        "1,2,4",         "https://a.example,null",
        "NGRAM",         "pooling",
        "mean",          "json",
        "shared-memory", R"({"method": "ngram", "num_speculative_tokens": 4})"}) {
    if (takes(row, word)) return std::string(word);
  }
  return row.name == "mla-prefill" ? "auto" : "a text";
}

TEST(Options, WhatIsSetIsWhatIsGot) {
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(row.get != nullptr, row.effect == OptionEffect::kActive) << row.name;
    if (row.get == nullptr) continue;
    const std::string value = other_value(row);
    Options options;
    set_option(options, row.name, value);
    EXPECT_EQ(option_text(row, options), value) << row.name;
    EXPECT_NE(row.get(options), row.get(Options())) << row.name;
    // Text and value are the same thing twice.
    Options again;
    set_option(again, row.name, option_text(row, options));
    EXPECT_EQ(row.get(again), row.get(options)) << row.name;
  }
}

TEST(Options, ACommandGivesWhatIsNotAtItsDefault) {
  Options options;
  set_option(options, "enable-priority-scheduling", "");
  set_option(options, "kv-cache-dtype", "bf16");
  set_option(options, "mem-fraction-static", "0.5");
  set_option(options, "served-model-name", "a,b");
  std::vector<std::string> words;
  for (const GivenOption& given : given_options(options))
    words.push_back(fmt::format("{} {}", given.row->name, given.text));
  EXPECT_THAT(words, testing::ElementsAre("kv-cache-dtype bfloat16", "served-model-name a,b",
                                          "mem-fraction-static 0.5", "schedule-policy priority"));
  // All of them at once make the same options.
  Options every, copy;
  for (const OptionRow& row : option_table())
    if (row.get != nullptr) set_option(every, row.name, other_value(row));
  for (const GivenOption& given : given_options(every))
    set_option(copy, given.row->name, given.text);
  EXPECT_EQ(option_values(copy), option_values(every));
}

TEST(Options, OneThatIsSetToItsDefaultIsGivenToo) {
  Options options;
  EXPECT_FALSE(was_given(options, "context-length"));
  set_option(options, "max_model_len", "0");
  EXPECT_TRUE(was_given(options, "context-length"));
  EXPECT_THROW(set_option(options, "dtype", "int3"), Error);
  EXPECT_FALSE(was_given(options, "dtype"));
  options.port = 1;
  EXPECT_TRUE(was_given(options, "port")) << "a field that is written counts where it differs";
  setenv("SLUICE_ARG_TP_SIZE", "1", 1);
  apply_environment(options);
  unsetenv("SLUICE_ARG_TP_SIZE");
  EXPECT_TRUE(was_given(options, "tp-size"));
}

TEST(Options, SecretsAreShownNowhere) {
  Options options;
  set_option(options, "api-key", "sesame");
  set_option(options, "admin-api-key", "mellon");
  const std::string shown = dump_json(option_values(options));
  EXPECT_THAT(shown, testing::Not(testing::AnyOf(HasSubstr("sesame"), HasSubstr("mellon"),
                                                 HasSubstr("api_key\""))));
  EXPECT_TRUE(given_options(options).empty());
}

TEST(Options, JunkIsRefusedByEveryNumberAndChoice) {
  for (const OptionRow& row : option_table()) {
    if (row.effect != OptionEffect::kActive) continue;
    const bool number = row.type == OptionType::kInt || row.type == OptionType::kFloat;
    const bool choice = row.type == OptionType::kString &&
                        row.allowed.find(", ") != std::string_view::npos &&
                        row.allowed.find("a ") == std::string_view::npos;
    if (!number && !choice && row.type != OptionType::kFlag) continue;
    for (std::string_view junk :
         {"junk", "nan", "inf", "1e999", "--", "0x10", "99999999999999999999999"}) {
      const std::string message = error_of(row.name, junk);
      EXPECT_THAT(message, HasSubstr(std::string(row.name))) << junk;
      EXPECT_THAT(message, HasSubstr(std::string(row.allowed))) << junk;
    }
    if (number) {
      EXPECT_NE(error_of(row.name, ""), "") << row.name;
      EXPECT_NE(error_of(row.name, "-2"), "") << row.name;
    }
  }
}

TEST(Options, SpellingsOfOtherEnginesAreRead) {
  Options o;
  set_option(o, "max_model_len", "32k");
  EXPECT_EQ(o.context_length, 32000);
  set_option(o, "context-length", "32K");
  EXPECT_EQ(o.context_length, 32768);
  set_option(o, "max-model-len", "25.6k");
  EXPECT_EQ(o.context_length, 25600);
  set_option(o, "gpu-memory-utilization", "0.5");
  EXPECT_EQ(o.mem_fraction_static, 0.5);
  set_option(o, "max-num-seqs", "7");
  EXPECT_EQ(o.max_running_requests, 7);
  set_option(o, "max_num_batched_tokens", "64");
  EXPECT_EQ(o.chunked_prefill_size, 64);
  set_option(o, "no-enable-prefix-caching", "");
  EXPECT_TRUE(o.disable_radix_cache);
  set_option(o, "dtype", "half");
  EXPECT_EQ(o.dtype, "float16");
  set_option(o, "generation-config", "vllm");
  EXPECT_EQ(o.sampling_defaults, "openai");
  set_option(o, "enable-priority-scheduling", "");
  EXPECT_EQ(o.schedule_policy, "priority");
  set_option(o, "served-model-name", "a,b");
  set_option(o, "served-model-name", "c");
  EXPECT_EQ(o.served_model_names, (std::vector<std::string>{"a", "b", "c"}));
  set_option(o, "seed", "9223372036854775807");
  EXPECT_EQ(o.random_seed, 9223372036854775807);
}

TEST(Options, TypesOfTheCacheOfOtherEnginesAreReadOrAnswered) {
  Options o;
  const std::pair<std::string_view, std::string_view> known[] = {
      {"auto", "auto"}, {"bf16", "bfloat16"}, {"bfloat16", "bfloat16"}, {"float32", "float32"},
      {"int8", "int8"}, {"fp8", "fp8_e4m3"},  {"fp8_e4m3", "fp8_e4m3"}};
  for (const auto& [given, wanted] : known) {
    set_option(o, "kv_cache_dtype", given);
    EXPECT_EQ(o.kv_cache_dtype, wanted);
  }
  for (const char* other : {"fp8_inc", "fp4_e2m1", "nvfp4", "float16"}) {
    const std::string message = error_of("kv-cache-dtype", other);
    EXPECT_THAT(message, HasSubstr(other));
    EXPECT_THAT(message, HasSubstr("fp8_e4m3 takes a byte an element"));
  }
  EXPECT_THAT(error_of("kv-cache-dtype", "fp8_e5m2"), HasSubstr("give fp8_e4m3"));
  for (const auto& [given, wanted] : {std::pair("auto", "auto"), std::pair("bf16", "bfloat16"),
                                      std::pair("fp8", "float8_e4m3fn")}) {
    set_option(o, "index-cache-dtype", given);
    EXPECT_EQ(o.index_cache_dtype, wanted);
  }
  EXPECT_THAT(error_of("index-cache-dtype", "int8"), HasSubstr("auto, bf16"));
}

TEST(Options, IgnoredOnesPassAndRefusedOnesSayWhy) {
  for (const OptionRow& row : option_table()) {
    if (row.effect == OptionEffect::kIgnored) {
      // Where it stands for something, other names would mean something else.
      const std::string_view other = row.allowed.starts_with("1") ? "2" : "1";
      const std::string message = error_of(row.name, other);
      if (row.allowed.empty())
        EXPECT_EQ(message, "") << row.name;
      else
        EXPECT_THAT(message, testing::AllOf(HasSubstr(fmt::format("{} {}", row.name, other)),
                                            HasSubstr(std::string(row.allowed))));
      EXPECT_EQ(error_of(row.name, row.default_text), "") << row.name;
    } else if (row.effect == OptionEffect::kRefused) {
      EXPECT_THAT(error_of(row.name, row.type == OptionType::kFlag ? "" : "7x"),
                  HasSubstr(std::string(row.help)));
      // Asking for what happens anyway is no error.
      if (row.default_text.empty()) continue;
      EXPECT_EQ(error_of(row.name, row.default_text), "") << row.name;
    }
  }
}

TEST(Options, NamesOfOtherEnginesKernelsAreReadOrRefused) {
  for (const char* known : {"auto", "flashinfer", "pytorch"})
    EXPECT_EQ(error_of("sampling-backend", known), "") << known;
  EXPECT_THAT(error_of("sampling-backend", "ascend"),
              HasSubstr("--sampling-backend ascend is refused"));
  EXPECT_EQ(error_of("moe_runner_backend", "triton"), "");
  EXPECT_THAT(error_of("moe-runner-backend", "flashinfer_mxfp4"), HasSubstr("of its own"));
  EXPECT_EQ(error_of("gpu-id-step", "1"), "");
  EXPECT_THAT(error_of("gpu-id-step", "2"), HasSubstr("one after another"));
  EXPECT_EQ(error_of("moe-a2a-backend", "none"), "");
  EXPECT_THAT(error_of("moe-a2a-backend", "deepep"), HasSubstr("exchanges no tokens"));
  for (const char* known : {"triton", "torch_native", "flex_attention", "cpu"})
    EXPECT_EQ(error_of("attention-backend", known), "") << known;
}

TEST(Options, MisspeltNamesGetTheNearest) {
  const std::pair<std::string_view, std::string_view> table[] = {
      {"contxt-length", "context-length"},
      {"chunked_prefil_size", "chunked-prefill-size"},
      {"max-totla-tokens", "max-total-tokens"},
      {"dtpye", "dtype"},
      {"sched", "schedule-policy"},
      {"watchdog", "watchdog-timeout"},
      {"xyzzyxyzzy", ""},
      {"q-q-q-q-q-q-q-q-q-q-q-q", ""}};
  for (const auto& [given, wanted] : table) EXPECT_EQ(nearest_option(given), wanted) << given;
  EXPECT_THAT(error_of("max-runing-requests", "1"),
              HasSubstr("did you mean --max-running-requests?"));
  EXPECT_EQ(nearest_option(std::string(100000, 'a')), "");
}

TEST(Options, TheDeviceIsNamedHereAndFoundAtStart) {
  Options options;
  set_option(options, "device", "gpu");
  EXPECT_EQ(options.device, "cuda");
  EXPECT_THAT(error_of("device", "tpu"), HasSubstr("auto, cpu, cuda"));
}

TEST(Options, GroupsOfExpertsAloneSayHowManyRanksThereAre) {
  Options options;
  set_option(options, "ep", "4");
  EXPECT_EQ(options.tp_size, 4);
  EXPECT_EQ(options.ep_size, 4);
  set_option(options, "tp", "1");
  EXPECT_EQ(options.tp_size, 4);
  set_option(options, "tp", "8");
  set_option(options, "expert-parallel-size", "2");
  EXPECT_EQ(options.tp_size, 8);
  // A rank is told of both.
  Options told;
  for (const GivenOption& given : given_options(options))
    set_option(told, given.row->name, given.text);
  EXPECT_EQ(told.tp_size, 8);
  EXPECT_EQ(told.ep_size, 2);
}

TEST(Options, NumaHasLlamaCppsWords) {
  Options options;
  EXPECT_EQ(options.numa, "distribute");
  for (const char* word : {"isolate", "numactl", "distribute"}) {
    set_option(options, "numa", word);
    EXPECT_EQ(options.numa, word);
  }
  EXPECT_THAT(error_of("numa", "mirror"),
              testing::AllOf(HasSubstr("'mirror'"), HasSubstr("distribute, isolate, numactl")));
}

TEST(Options, EnvironmentIsReadByName) {
  setenv("SLUICE_ARG_CONTEXT_LENGTH", "4k", 1);
  setenv("SLUICE_ARG_DISABLE_RADIX_CACHE", "true", 1);
  setenv("SGL_CHUNKED_PREFIX_CACHE_THRESHOLD", "1", 1);
  Options options;
  apply_environment(options);
  EXPECT_EQ(options.context_length, 4000);
  EXPECT_TRUE(options.disable_radix_cache);
  setenv("SLUICE_ARG_CONTEXT_LENGTH", "many", 1);
  try {
    apply_environment(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("SLUICE_ARG_CONTEXT_LENGTH"));
  }
  unsetenv("SLUICE_ARG_CONTEXT_LENGTH");
  setenv("SLUICE_ARG_CONTEXT_LENGHT", "1", 1);
  EXPECT_THROW(apply_environment(options), Error);
  unsetenv("SLUICE_ARG_CONTEXT_LENGHT");
  unsetenv("SLUICE_ARG_DISABLE_RADIX_CACHE");
  unsetenv("SGL_CHUNKED_PREFIX_CACHE_THRESHOLD");
}

}  // namespace
}  // namespace sluice
