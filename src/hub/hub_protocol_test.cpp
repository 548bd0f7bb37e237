// The hub protocol without a hub: headers, addresses, lists of files, their selection, and the
// words for failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/files/weight_map.h"
#include "hub/file_choice.h"
#include "hub/http_message.h"
#include "hub/hub_errors.h"
#include "hub/repo_files.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kSha1(40, 'a'), kSha256(64, 'b');

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}

HttpHead head_of(std::initializer_list<std::string_view> lines) {
  HttpHead head;
  for (const std::string_view line : lines) EXPECT_TRUE(head.add_line(line));
  return head;
}

TEST(HttpMessage, Heads) {
  const HttpHead head =
      head_of({"HTTP/1.1 100 Continue\r\n", "X-Old: 1\r\n", "HTTP/1.1 206 Partial Content\r\n",
               "ETag:  W/\"abc\" \r\n", "x-twice: 1\r\n", "X-Twice: 2\r\n", "no colon\r\n",
               ": no name\r\n", "\r\n"});
  EXPECT_EQ(head.status(), 206);
  EXPECT_EQ(plain_etag(head.get("etag")), "abc");
  EXPECT_EQ(head.get("X-Twice"), "2");
  EXPECT_FALSE(head.has("X-Old"));
  HttpHead flood;
  bool taken = true;
  for (int i = 0; taken && i < 1000; ++i) taken = flood.add_line("X: y\r\n");
  EXPECT_FALSE(taken);
  HttpHead large;
  EXPECT_FALSE(large.add_line(std::string(HttpHead::kMaxBytes + 1, 'x')));
}

TEST(HttpMessage, Addresses) {
  const auto text = [](std::string_view url) {
    const auto parsed = parse_hub_url(url);
    return parsed ? parsed->text() : "none";
  };
  EXPECT_EQ(text("HTTPS://Hub.Example"), "https://hub.example/");
  EXPECT_EQ(text("http://a:80/b?c#d"), "http://a/b?c");
  EXPECT_EQ(text("http://a?b"), "http://a/?b");
  EXPECT_EQ(text("https://[::1]:8443/x"), "https://[::1]:8443/x");
  for (const char* bad : {"ftp://a", "a/b", "http://", "http://user@a/", "http://a:0/",
                          "http://a:99999/", "http://a:x/", "http://a b/", "file:///etc/passwd",
                          "http://a\n/", "http://[::1", "http://a:"})
    EXPECT_EQ(text(bad), "none") << bad;

  const Url base = *parse_hub_url("https://hub.example/a/b?c=1");
  const auto led = [&](std::string_view location) {
    const auto next = resolve_location(base, location);
    return next ? next->text() : "none";
  };
  EXPECT_EQ(led("/x?y"), "https://hub.example/x?y");
  EXPECT_EQ(led("x"), "https://hub.example/a/x");
  EXPECT_EQ(led("?d"), "https://hub.example/a/b?d");
  EXPECT_EQ(led("//cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(led("http://cdn.example/x#y"), "http://cdn.example/x");
  EXPECT_EQ(led("x:y"), "none");
  EXPECT_EQ(led("file:///x"), "none");
  EXPECT_EQ(led(""), "none");
  EXPECT_TRUE(same_origin(base, *parse_hub_url("https://HUB.example:443/z")));
  for (const char* other :
       {"http://hub.example/", "https://hub.example:444/", "https://hub.example.evil/"})
    EXPECT_FALSE(same_origin(base, *parse_hub_url(other))) << other;
  EXPECT_EQ(url_escaped("a b/%?\xc3\xa9"), "a%20b/%25%3F%C3%A9");
  EXPECT_EQ(url_escaped("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(HttpMessage, LinksRangesAndWaits) {
  EXPECT_EQ(next_link("<https://h/1>; rel=\"prev\", <https://h/2?a,b>; rel=\"next\""),
            "https://h/2?a,b");
  EXPECT_EQ(next_link("<https://h/2>; title=\"x\"; rel=next"), "https://h/2");
  for (const char* none : {"", "<a", "<a>; rel=\"prev\"", "a; rel=next"})
    EXPECT_EQ(next_link(none), "") << none;
  const auto range = parse_content_range("bytes 5-9/20");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first + range->last + range->size, 34u);
  for (const char* bad :
       {"", "bytes 5-9/*", "bytes */20", "bytes 9-5/20", "bytes 5-20/20", "items 5-9/20",
        "bytes -9/20", "bytes 5-9", "bytes 5-99999999999999999999/20"})
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  EXPECT_EQ(asked_to_wait(head_of({"Retry-After: 7"}))->count(), 7);
  EXPECT_EQ(asked_to_wait(head_of({"RateLimit: \"api\";r=0;t=55"}))->count(), 55);
  EXPECT_EQ(asked_to_wait(head_of({"Retry-After: 99999999999999"}))->count(), 1'000'000);
  EXPECT_FALSE(asked_to_wait(head_of({"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"})));
  EXPECT_EQ(plain_etag("\"a\""), "a");
  EXPECT_EQ(plain_etag("\""), "\"");
}

TEST(RepoFiles, PagesOfTheList) {
  std::vector<RepoFile> files;
  append_tree_page(R"([{"type":"directory","path":"sub","oid":"x","size":0},
      {"type":"file","path":"sub/a.json","size":3,"oid":")" +
                       kSha1 + R"("},
      {"type":"file","path":"w.bin","size":130,"oid":")" +
                       kSha1 + R"(","lfs":{"oid":")" + kSha256 + R"(","size":99},"xetHash":")" +
                       kSha256 + R"("}])",
                   files);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0], (RepoFile{"sub/a.json", 3, kSha1, "", ""}));
  EXPECT_EQ(files[1], (RepoFile{"w.bin", 99, kSha1, kSha256, kSha256}));
  EXPECT_EQ(files[0].digest(), kSha1);
  EXPECT_EQ(files[1].digest(), kSha256);
  EXPECT_EQ(parse_tree_cache(tree_cache_text(files)), files);
  // An invalid digest is dropped, and the pointer's name does not stand for a large file.
  append_tree_page(R"([{"path":"x","size":1,"oid":"../../x","lfs":{"oid":"y","size":1}}])", files);
  EXPECT_EQ(files.back().digest(), "");

  const std::pair<const char*, const char*> rows[] = {
      {"{}", "not a list"},
      {"[1]", "no file"},
      {"[", "list of files"},
      {R"([{"path":"../x","size":1}])", "could lead out"},
      {R"([{"size":1}])", "could lead out"},
      {R"([{"path":"x"}])", "no size for x"},
      {R"([{"path":"x","size":-1}])", "no size for x"},
      {R"([{"path":"x","size":99999999999999}])", "bytes are allowed"},
      {R"([{"path":"x","size":1,"lfs":{"oid":"a"}}])", "no size for x"}};
  for (const auto& [page, says] : rows)
    EXPECT_THAT(error_of([&] { append_tree_page(page, files); }),
                HasSubstr(says == std::string("bytes are allowed") ? "are allowed" : says))
        << page;
  RepoLimits few;
  few.max_files = 1;
  files.clear();
  EXPECT_THAT(error_of([&] {
                append_tree_page(R"([{"path":"x","size":1},{"path":"y","size":1}])", files, few);
              }),
              HasSubstr("more than 1 files"));
  for (const char* other :
       {"", "[]", "{}", R"({"format_version":2,"files":{}})",
        R"({"format_version":1,"files":{"../x":{"size":1}}})",
        R"({"format_version":1,"files":{"x":{}}})", R"({"format_version":1,"files":{"x":1}})"})
    EXPECT_FALSE(parse_tree_cache(other)) << other;
  EXPECT_EQ(commit_of_reply("{\"sha\":\"" + kSha1 + "\"}"), kSha1);
  for (const char* bad : {"{}", "[]", R"({"sha":1})", R"({"sha":"main"})"})
    EXPECT_THAT(error_of([&] { commit_of_reply(bad); }), HasSubstr("holds no commit")) << bad;
}

TEST(RepoFiles, PathsThatAreSafe) {
  for (const char* good :
       {"a", "a/b.c", ".gitattributes", "a b (1).gguf", "\xc3\xa9/x", "..a", "a/..b"})
    EXPECT_TRUE(is_safe_repo_path(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string("a/../b"), std::string("C:\\x"), std::string("a\\b"), std::string("a\0b", 3),
        std::string("a\nb"), std::string("\xff"), std::string("\xed\xa0"), std::string(256, 'x'),
        std::string(1025, '/')})
    EXPECT_FALSE(is_safe_repo_path(bad)) << bad;
}

std::vector<std::string> names_of(const std::vector<RepoFile>& files) {
  std::vector<std::string> names;
  for (const RepoFile& file : files) names.push_back(file.path);
  return names;
}

TEST(FileChoice, TextFilesEndWithTheConfiguration) {
  std::vector<RepoFile> files;
  for (const char* path : {"config.json",
                           "model.safetensors",
                           "tokenizer.json",
                           "merges.txt",
                           "modeling_x.py",
                           "README.md",
                           ".gitattributes",
                           "additional_chat_templates/rag.jinja",
                           "onnx/config.json",
                           "qwen.tiktoken",
                           "a b.json",
                           "tokenizer.model",
                           "1_Pooling/config.json",
                           "_x/config.json",
                           "1_Pooling/model.json",
                           "1_Pooling/x/config.json",
                           "2_Dense/config.json",
                           "2_Dense/model.safetensors",
                           "3_Dense/pytorch_model.bin",
                           "2_Dense/model.onnx",
                           "0_Transformer/pytorch_model.bin"})
    files.push_back({path, 1, kSha1, "", ""});
  files.push_back({"huge.json", std::uint64_t{1} << 40, kSha1, "", ""});
  EXPECT_THAT(names_of(choose_text_files(files)),
              ElementsAre("tokenizer.json", "merges.txt", "modeling_x.py",
                          "additional_chat_templates/rag.jinja", "qwen.tiktoken", "tokenizer.model",
                          "1_Pooling/config.json", "2_Dense/config.json",
                          "2_Dense/model.safetensors", "3_Dense/pytorch_model.bin", "config.json"));
}

TEST(FileChoice, WeightsByFormat) {
  const auto chosen = [](const std::vector<std::string>& names, std::string_view load_format,
                         std::string_view tag = "") {
    const auto choice = choose_weights(names, formats_of(load_format), tag);
    if (!choice) return std::vector<std::string>{};
    return choice->index.empty() ? choice->names : std::vector<std::string>{choice->index};
  };
  const std::vector<std::string> all = {"consolidated.safetensors",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin",
                                        "m-Q4_K_M.gguf",
                                        "m-Q4_K_S.gguf",
                                        "M-Q8_0-00001-of-00002.gguf",
                                        "M-Q8_0-00002-of-00002.gguf",
                                        "mmproj-m-f16.gguf"};
  EXPECT_THAT(chosen(all, "auto"), ElementsAre("model.safetensors.index.json"));
  // Whether that index counts is seen in it.
  EXPECT_THAT(chosen({"model.safetensors", "model.safetensors.index.json"}, "safetensors"),
              ElementsAre("model.safetensors.index.json"));
  EXPECT_THAT(chosen(all, "pt"), ElementsAre("pytorch_model.bin"));
  EXPECT_THAT(chosen({"pytorch_model.bin.index.json"}, "auto"),
              ElementsAre("pytorch_model.bin.index.json"));
  EXPECT_THAT(chosen({"model.gguf", "mmproj.gguf"}, "auto"), ElementsAre("model.gguf"));
  EXPECT_THAT(chosen(all, "auto", "q8_0"),
              ElementsAre("M-Q8_0-00001-of-00002.gguf", "M-Q8_0-00002-of-00002.gguf"));
  EXPECT_THAT(chosen(all, "gguf", "Q4_K_M"), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(chosen({"m-Q4_K.gguf", "m-Q4_K_M.gguf"}, "gguf", "Q4_K"), ElementsAre("m-Q4_K.gguf"));
  EXPECT_THAT(chosen(all, "dummy"), IsEmpty());
  EXPECT_THAT(chosen({"README.md"}, "auto"), IsEmpty());
  EXPECT_THAT(error_of([&] { chosen(all, "gguf"); }),
              HasSubstr("M-Q8_0 in 2 parts, m-Q4_K_M.gguf, m-Q4_K_S.gguf"));
  EXPECT_THAT(error_of([&] { chosen(all, "gguf", "Q4_K"); }), HasSubstr("there are 2 GGUF files"));
  EXPECT_THAT(error_of([&] { chosen(all, "gguf", "Q5"); }), HasSubstr("no GGUF file has \"Q5\""));
  EXPECT_THAT(error_of([&] { formats_of("tf"); }), HasSubstr("auto, safetensors, pt, gguf, dummy"));
}

TEST(FileChoice, ShardsOfAnIndex) {
  EXPECT_THAT(
      shards_of(read_weight_map(R"({"weight_map":{"a":"2.bin","b":"1.bin","c":"2.bin"}})", "i"),
                "i"),
      ElementsAre("1.bin", "2.bin"));
  for (const char* bad : {"", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
                          R"({"weight_map":{"a":"../x"}})", R"({"weight_map":[]})"})
    EXPECT_THAT(error_of([&] { read_weight_map(bad, "the index"); }), HasSubstr("the index"))
        << bad;
}

TEST(FileChoice, Globs) {
  const auto fits = [](const char* path, const char* pattern) {
    return matches_glob(path, pattern);
  };
  EXPECT_TRUE(fits("a/b.json", "*.json"));
  EXPECT_TRUE(fits("a.json", "?.json"));
  EXPECT_TRUE(fits("model-2.bin", "model-[0-3].bin"));
  EXPECT_TRUE(fits("onnx/x/y", "onnx/"));
  EXPECT_TRUE(fits("ab", "*a*b*"));
  EXPECT_TRUE(fits("[", "["));
  EXPECT_TRUE(fits("b", "[!a]"));
  EXPECT_FALSE(fits("a", "[!a]"));
  EXPECT_FALSE(fits("model-7.bin", "model-[0-3].bin"));
  EXPECT_FALSE(fits("a.json2", "*.json"));
  EXPECT_FALSE(fits("", "?"));
  EXPECT_TRUE(fits("", "**"));
  // A pattern with many stars ends soon.
  EXPECT_FALSE(matches_glob(std::string(1000, 'a'), std::string(500, '*') + "b"));
}

TEST(HubErrors, WordsAndWaits) {
  HubSettings settings;
  settings.endpoint = "https://hub.example";
  const HubQuestion question{"org/m", "v1", ""};
  const auto says = [&](std::initializer_list<std::string_view> lines) {
    return explain_status(head_of(lines), question, settings);
  };
  EXPECT_THAT(says({"HTTP/1.1 403 x", "X-Error-Code: GatedRepo"}),
              HasSubstr("accept its terms at https://hub.example/org/m, then set HF_TOKEN"));
  EXPECT_THAT(says({"HTTP/1.1 404 x", "X-Error-Code: RevisionNotFound"}),
              HasSubstr("no revision \"v1\""));
  EXPECT_THAT(says({"HTTP/1.1 429 x"}), HasSubstr("limits the rate"));
  settings.token = "hf_secret";
  settings.token_source = "HF_TOKEN";
  for (const int status : {400, 401, 403, 404, 416, 429, 500, 302})
    EXPECT_THAT(says({fmt::format("HTTP/1.1 {} x", status)}), Not(HasSubstr("hf_secret")))
        << status;
  EXPECT_THAT(says({"HTTP/1.1 401 x"}), HasSubstr("refuses the token of HF_TOKEN"));

  Patience patience;
  for (int i = 0; i < Patience::kTries; ++i) {
    const auto wait = patience.next(Patience::kTries, std::nullopt);
    ASSERT_TRUE(wait);
    EXPECT_GE(wait->count(), 500 << i);
    EXPECT_LT(wait->count(), 625 << i);
  }
  EXPECT_FALSE(patience.next(Patience::kTries, std::nullopt));
  patience.reset();
  EXPECT_EQ(patience.next(Patience::kTries, std::chrono::seconds(7))->count(), 7000);
  EXPECT_FALSE(patience.next(Patience::kTries, std::chrono::seconds(121)));
}

}  // namespace
}  // namespace sluice
