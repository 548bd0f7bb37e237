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
  // Fields that the table's defaults must leave as they are.
  Options set, fresh;
  for (const OptionRow& row : option_table())
    if (row.effect == OptionEffect::kActive && !row.default_text.empty())
      set_option(set, row.name, row.default_text);
  EXPECT_EQ(set.revision, fresh.revision);
  EXPECT_EQ(set.load_format, fresh.load_format);
  EXPECT_EQ(set.dtype, fresh.dtype);
  EXPECT_EQ(set.quantization, fresh.quantization);
  EXPECT_EQ(set.quantization_group_size, fresh.quantization_group_size);
  EXPECT_EQ(set.kv_cache_dtype, fresh.kv_cache_dtype);
  EXPECT_EQ(set.index_cache_dtype, fresh.index_cache_dtype);
  EXPECT_EQ(set.context_length, fresh.context_length);
  EXPECT_EQ(set.json_model_override_args, fresh.json_model_override_args);
  EXPECT_EQ(set.sampling_defaults, fresh.sampling_defaults);
  EXPECT_EQ(set.mem_fraction_static, fresh.mem_fraction_static);
  EXPECT_EQ(set.max_total_tokens, fresh.max_total_tokens);
  EXPECT_EQ(set.max_running_requests, fresh.max_running_requests);
  EXPECT_EQ(set.max_queued_requests, fresh.max_queued_requests);
  EXPECT_EQ(set.max_queued_tokens, fresh.max_queued_tokens);
  EXPECT_EQ(set.chunked_prefill_size, fresh.chunked_prefill_size);
  EXPECT_EQ(set.disable_radix_cache, fresh.disable_radix_cache);
  EXPECT_EQ(set.schedule_policy, fresh.schedule_policy);
  EXPECT_EQ(set.schedule_conservativeness, fresh.schedule_conservativeness);
  EXPECT_EQ(set.attention_backend, fresh.attention_backend);
  EXPECT_EQ(set.mla_prefill, fresh.mla_prefill);
  EXPECT_EQ(set.device, fresh.device);
  EXPECT_EQ(set.threads, fresh.threads);
  EXPECT_EQ(set.numa, fresh.numa);
  EXPECT_EQ(set.random_seed, fresh.random_seed);
  EXPECT_EQ(set.watchdog_timeout_s, fresh.watchdog_timeout_s);
  EXPECT_EQ(set.drain_timeout_s, fresh.drain_timeout_s);
  EXPECT_EQ(set.decode_log_interval, fresh.decode_log_interval);
  EXPECT_EQ(set.log_level, fresh.log_level);
  EXPECT_EQ(set.host, fresh.host);
  EXPECT_EQ(set.port, fresh.port);
  EXPECT_EQ(set.reasoning_field, fresh.reasoning_field);
  EXPECT_EQ(set.stream_interval, fresh.stream_interval);
  EXPECT_EQ(set.io_threads, fresh.io_threads);
  EXPECT_EQ(set.metrics_compat, fresh.metrics_compat);
  EXPECT_EQ(set.max_body_bytes, fresh.max_body_bytes);
  EXPECT_EQ(set.max_connections, fresh.max_connections);
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
  const std::pair<std::string_view, std::string_view> known[] = {{"auto", "auto"},
                                                                 {"bf16", "bfloat16"},
                                                                 {"bfloat16", "bfloat16"},
                                                                 {"float32", "float32"},
                                                                 {"int8", "int8"}};
  for (const auto& [given, wanted] : known) {
    set_option(o, "kv_cache_dtype", given);
    EXPECT_EQ(o.kv_cache_dtype, wanted);
  }
  for (const char* other :
       {"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp4_e2m1", "nvfp4", "float16"}) {
    const std::string message = error_of("kv-cache-dtype", other);
    EXPECT_THAT(message, HasSubstr(other));
    EXPECT_THAT(message, HasSubstr("int8 takes as little memory as fp8"));
  }
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
      EXPECT_EQ(error_of(row.name, "1"), "") << row.name;
    } else if (row.effect == OptionEffect::kRefused) {
      EXPECT_THAT(error_of(row.name, row.type == OptionType::kFlag ? "" : "7x"),
                  HasSubstr(std::string(row.help)));
      // Asking for what happens anyway is no error.
      if (row.default_text.empty()) continue;
      EXPECT_EQ(error_of(row.name, row.default_text), "") << row.name;
    }
  }
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
