// The cache on disk: locations of entries, incomplete blobs, locks, scan and removal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/testing/folder.h"
#include "hub/cache_scan.h"
#include "hub/file_lock.h"
#include "hub/hub_cache.h"
#include "hub/partial_blob.h"
#include "hub/resolve.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCommit(40, 'a'), kOther(40, 'b');

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return (std::ostringstream() << file.rdbuf()).str();
}

std::string sha256(std::string_view text) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(text)));
  return digest.hex();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST(HubEnvironment, SettingsOfTheVariables) {
  HubEnvironment e;
  e.home = "/home/u";
  HubSettings s = e.settings();
  EXPECT_EQ(s.endpoint, "https://huggingface.co");
  EXPECT_EQ(s.token, "");
  EXPECT_FALSE(s.offline);
  EXPECT_TRUE(s.symlinks && e.shows_progress());
  EXPECT_EQ(s.etag_timeout.count() + s.download_timeout.count(), 20);
  const TestFolder home;
  home.write("token", " hf_file\n");
  e.hf_home = home.path();
  EXPECT_EQ(e.settings().token, "hf_file");
  EXPECT_EQ(e.settings().token_source, home.path() + "/token");
  home.write("other", "hf_other");
  e.hf_token_path = home.path() + "/other";
  EXPECT_EQ(e.settings().token, "hf_other");
  e.hugging_face_hub_token = "hf_old";
  EXPECT_EQ(e.settings().token, "hf_old");
  e.hf_token = "hf_new";
  EXPECT_EQ(e.settings().token, "hf_new");
  e.disable_implicit_token = "1";
  EXPECT_EQ(e.settings().token, "");
  e.hf_endpoint = "http://mirror:8080/hub//";
  e.transformers_offline = "yes";
  e.disable_symlinks = "ON";
  e.download_timeout = "60";
  e.disable_progress_bars = "True";
  s = e.settings();
  EXPECT_EQ(s.endpoint, "http://mirror:8080/hub");
  EXPECT_EQ(s.offline_variable, "TRANSFORMERS_OFFLINE");
  EXPECT_FALSE(s.symlinks || e.shows_progress());
  EXPECT_EQ(s.download_timeout.count(), 60);
  e.hf_hub_offline = "0";  // it has priority
  EXPECT_FALSE(e.settings().offline);
  const auto refuses = [](HubEnvironment bad) {
    try {
      bad.settings();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  HubEnvironment bad;
  bad.etag_timeout = "0";
  EXPECT_THAT(refuses(bad), HasSubstr("HF_HUB_ETAG_TIMEOUT is \"0\""));
  bad.etag_timeout = "";
  bad.hf_endpoint = "hub.example";
  EXPECT_THAT(refuses(bad), HasSubstr("HF_ENDPOINT is"));
  bad.hf_endpoint = "";
  bad.hf_token = "hf_a b";
  EXPECT_THAT(refuses(bad), HasSubstr("no token has"));
  EXPECT_THAT(refuses(bad), Not(HasSubstr("hf_a b")));
}

TEST(HubCache, Names) {
  EXPECT_EQ(repo_folder_name("org/m"), "models--org--m");
  EXPECT_EQ(repo_folder_name("gpt2"), "models--gpt2");
  EXPECT_EQ(repo_id_of_folder("models--org--m"), "org/m");
  EXPECT_EQ(repo_id_of_folder("models--gpt2"), "gpt2");
  for (const char* other : {"datasets--a--b", "models--", "models--a--b--c", ".locks"})
    EXPECT_EQ(repo_id_of_folder(other), "") << other;
}

TEST(HubCache, WhatIsWritten) {
  const TestFolder folder;
  const RepoCache cache(folder.path(), "org/m");
  const std::string repo = folder.path() + "/models--org--m/";
  cache.prepare();
  cache.prepare();
  EXPECT_THAT(text_of(folder.path() + "/CACHEDIR.TAG"),
              HasSubstr("Signature: 8a477f597d28d172789f06886806bc55\n"));
  EXPECT_TRUE(fs::is_directory(folder.path() + "/.locks/models--org--m"));
  cache.write_ref("main", kCommit);
  cache.write_ref("main", kOther);
  cache.write_ref("refs/pr/1", kCommit);
  EXPECT_EQ(text_of(repo + "refs/main"), kOther);
  EXPECT_EQ(cache.read_ref("main"), kOther);
  EXPECT_EQ(cache.read_ref("refs/pr/1"), kCommit);
  EXPECT_EQ(cache.read_ref("v2"), "");
  EXPECT_THAT(names_in(repo + "refs"), ElementsAre("main", "refs"));  // no temporary file is left

  folder.write("models--org--m/blobs/d1", "one");
  cache.link(kCommit, "a/b/c.txt", "d1", true, true);
  cache.link(kCommit, "top", "d1", true, true);
  cache.link(kCommit, "top", "d1", true, false);  // a second link replaces the first
  EXPECT_EQ(fs::read_symlink(repo + "snapshots/" + kCommit + "/a/b/c.txt"), "../../../../blobs/d1");
  EXPECT_EQ(fs::read_symlink(repo + "snapshots/" + kCommit + "/top"), "../../blobs/d1");
  EXPECT_EQ(text_of(repo + "snapshots/" + kCommit + "/a/b/c.txt"), "one");
  EXPECT_TRUE(cache.has_file(kCommit, "top"));
  EXPECT_FALSE(cache.has_file(kCommit, "none"));
  // Without links a blob that other snapshots may have is copied, and a new blob is moved.
  cache.link(kOther, "copy", "d1", false, false);
  EXPECT_FALSE(fs::is_symlink(repo + "snapshots/" + kOther + "/copy"));
  EXPECT_TRUE(fs::exists(repo + "blobs/d1"));
  folder.write("models--org--m/blobs/d2", "two");
  cache.link(kOther, "moved", "d2", false, true);
  EXPECT_EQ(text_of(repo + "snapshots/" + kOther + "/moved"), "two");
  EXPECT_FALSE(fs::exists(repo + "blobs/d2"));
  // A folder of the snapshot that is a link to elsewhere is not followed.
  fs::create_directory_symlink(folder.path(), repo + "snapshots/" + kCommit + "/out");
  EXPECT_THROW(cache.link(kCommit, "out/x", "d1", true, false), Error);
  EXPECT_FALSE(fs::exists(folder.path() + "/x"));

  cache.mark_absent(kCommit, "sub/vocab.txt");
  EXPECT_TRUE(cache.is_known_absent(kCommit, "sub/vocab.txt"));
  EXPECT_FALSE(cache.is_known_absent(kOther, "sub/vocab.txt"));
  const std::vector<RepoFile> files = {{"a", 3, kCommit, "", ""}};
  EXPECT_FALSE(cache.read_tree(kCommit));
  cache.write_tree(kCommit, files);
  EXPECT_EQ(cache.read_tree(kCommit), files);
  folder.write("models--org--m/trees/" + kCommit + ".json", "{");
  EXPECT_FALSE(cache.read_tree(kCommit));
  EXPECT_GT(free_bytes(folder.path() + "/not/yet/there"), 0u);
}

// Three pieces and a bit.
std::string content() {
  std::string text;
  for (std::uint32_t i = 0; text.size() < (3 << 20) + 1000; ++i)
    text += std::to_string(i * 2654435761u);
  return text;
}

void fill(PartialBlob& blob, std::string_view text, std::initializer_list<std::size_t> pieces) {
  for (const std::size_t piece : pieces) {
    blob.write(blob.begin(piece), std::as_bytes(std::span(text.substr(
                                      blob.begin(piece), blob.end(piece) - blob.begin(piece)))));
    blob.mark_done(piece);
    blob.advance_digest();
  }
}

TEST(PartialBlob, SurvivesAndIsChecked) {
  const TestFolder folder;
  const RepoCache cache(folder.path(), "org/m");
  cache.prepare();
  const std::string text = content(), digest = sha256(text),
                    blobs = folder.path() + "/models--org--m/blobs";
  {
    PartialBlob blob(cache, digest, text.size(), true);
    ASSERT_EQ(blob.num_pieces(), 4u);
    EXPECT_FALSE(blob.was_resumed());
    fill(blob, text, {0, 3});
  }
  ASSERT_EQ(names_in(blobs).size(), 1u);
  EXPECT_TRUE(names_in(blobs)[0].starts_with(digest + ".") &&
              names_in(blobs)[0].ends_with(".incomplete"));
  {
    // An object without a working lock takes nothing over and disturbs no other.
    PartialBlob other(cache, digest, text.size(), false);
    EXPECT_FALSE(other.was_resumed());
    EXPECT_EQ(names_in(blobs).size(), 2u);
    PartialBlob blob(cache, digest, text.size(), true);
    EXPECT_TRUE(blob.was_resumed());
    EXPECT_EQ(blob.done_bytes(), (1u << 20) + text.size() - (3u << 20));
    EXPECT_TRUE(blob.is_done(0) && !blob.is_done(1) && !blob.is_done(2) && blob.is_done(3));
    fill(blob, text, {2, 1});
    EXPECT_TRUE(blob.finish());
    fill(other, text, {0, 1, 2, 3});  // the other object took over its file
    EXPECT_TRUE(other.finish());
  }
  EXPECT_THAT(names_in(blobs), ElementsAre(digest));
  EXPECT_EQ(text_of(blobs + "/" + digest), text);
}

TEST(PartialBlob, WrongBytesGetNoName) {
  const TestFolder folder;
  const RepoCache cache(folder.path(), "org/m");
  cache.prepare();
  const std::string text = content(), digest = sha256(text),
                    blobs = folder.path() + "/models--org--m/blobs";
  std::string wrong = text;
  wrong[5] ^= 1;
  PartialBlob blob(cache, digest, text.size(), true);
  fill(blob, wrong, {0, 1, 2, 3});
  EXPECT_FALSE(blob.finish());
  EXPECT_EQ(blob.found_digest(), sha256(wrong));
  EXPECT_EQ(blob.done_bytes(), 0u);
  EXPECT_FALSE(fs::exists(blobs + "/" + digest));
  fill(blob, text, {3, 2, 1, 0});
  EXPECT_TRUE(blob.finish());
  EXPECT_EQ(text_of(blobs + "/" + digest), text);
}

TEST(PartialBlob, WhatOthersLeft) {
  const std::string text = content(), digest = sha256(text);
  const auto resumed_from =
      [&](std::initializer_list<std::pair<std::string, std::string>> leftovers) {
        const TestFolder folder;
        const RepoCache cache(folder.path(), "org/m");
        cache.prepare();
        for (const auto& [name, bytes] : leftovers)
          folder.write("models--org--m/blobs/" + name, bytes);
        folder.write("models--org--m/blobs/unrelated.incomplete", "x");
        PartialBlob blob(cache, digest, text.size(), true);
        EXPECT_EQ(names_in(folder.path() + "/models--org--m/blobs").size(), 2u);
        const std::uint64_t done = blob.done_bytes();
        for (std::size_t piece = 0; piece < blob.num_pieces(); ++piece)
          if (!blob.is_done(piece)) fill(blob, text, {piece});
        EXPECT_TRUE(blob.finish());
        EXPECT_EQ(text_of(cache.blob(digest)), text);
        return done;
      };
  EXPECT_EQ(resumed_from({{digest + ".incomplete", text.substr(0, (2 << 20) + 5)}}), 2u << 20);
  EXPECT_EQ(resumed_from({{digest + ".0badf00d.incomplete", text.substr(0, 1 << 20)},
                          {digest + ".incomplete", text.substr(0, 2 << 20)}}),
            2u << 20);
  EXPECT_EQ(resumed_from({{digest + ".incomplete", text}}), text.size());
  EXPECT_EQ(resumed_from({{digest + ".incomplete", ""}}), 0u);
  EXPECT_EQ(
      resumed_from({{digest + ".incomplete", text + "PTIALB01 and more than there should be"}}),
      0u);
}

TEST(PartialBlob, GitDigestsAndNothing) {
  const TestFolder folder;
  const RepoCache cache(folder.path(), "org/m");
  cache.prepare();
  PartialBlob empty(cache, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", 0, true);
  EXPECT_EQ(empty.num_pieces(), 0u);
  EXPECT_TRUE(empty.finish());
  PartialBlob hello(cache, "ce013625030ba8dba906f756967f9e9ca394464a", 6,
                    true);  // git hash-object of "hello\n"
  fill(hello, "hello\n", {0});
  EXPECT_TRUE(hello.finish());
  EXPECT_EQ(piece_bytes_of(0), 1u << 20);
  EXPECT_EQ(piece_bytes_of(std::uint64_t{100} << 20), 2u << 20);
  EXPECT_EQ(piece_bytes_of(std::uint64_t{1} << 40), 32u << 20);
}

TEST(FileLock, OneAtATime) {
  const TestFolder folder;
  const std::string path = folder.path() + "/x.lock";
  std::optional<FileLock> first(std::in_place, path, nullptr, nullptr);
  EXPECT_TRUE(first->is_real());
  const int other = ::open(path.c_str(), O_RDWR);
  EXPECT_NE(::flock(other, LOCK_EX | LOCK_NB), 0);
  std::atomic<bool> stop{true};
  EXPECT_THROW(FileLock(path, &stop, nullptr), Error);
  std::atomic<bool> told{false};
  std::thread second([&] { FileLock lock(path, nullptr, [&] { told = true; }); });
  while (!told) std::this_thread::yield();
  first.reset();
  second.join();
  ::close(other);
  EXPECT_THROW(FileLock(folder.path() + "/none/x.lock", nullptr, nullptr), Error);
}

TEST(CacheScan, SizesAndRemoval) {
  const TestFolder folder;
  const RepoCache cache(folder.path(), "org/m");
  cache.prepare();
  const std::string repo = "models--org--m/";
  for (const char* blob : {"config1", "config2", "shared"})
    folder.write(repo + "blobs/" + blob, std::string(100, 'x'));
  folder.write(repo + "blobs/gone.12345678.incomplete", std::string(5000, 'x'));
  cache.link(kCommit, "config.json", "config1", true, false);
  cache.link(kCommit, "model.safetensors", "shared", true, false);
  cache.link(kOther, "config.json", "config2", true, false);
  cache.link(kOther, "sub/copy", "shared", true, false);
  cache.write_ref("main", kCommit);
  cache.write_ref("v1", kCommit);
  cache.mark_absent(kCommit, "vocab.txt");
  cache.write_tree(kCommit, {});
  fs::create_directories(folder.path() + "/datasets--a--b");
  folder.write("models--gpt2/refs/main", kCommit);

  const std::vector<CachedRepo> repos = scan_cache(folder.path());
  ASSERT_EQ(repos.size(), 2u);
  EXPECT_EQ(repos[0].repo_id, "gpt2");
  EXPECT_TRUE(repos[0].revisions.empty());
  const CachedRepo& m = repos[1];
  EXPECT_EQ(m.repo_id, "org/m");
  ASSERT_EQ(m.revisions.size(), 2u);
  const CachedRevision& first = m.revisions[m.revisions[0].commit == kCommit ? 0 : 1];
  const CachedRevision& second = m.revisions[m.revisions[0].commit == kCommit ? 1 : 0];
  EXPECT_THAT(first.refs, ElementsAre("main", "v1"));
  EXPECT_EQ(first.bytes, 200u);
  EXPECT_TRUE(first.has_model && first.has_weights);
  EXPECT_EQ(second.num_files, 2u);
  EXPECT_TRUE(second.has_model && !second.has_weights);
  EXPECT_GT(m.incomplete_bytes, 0u);
  EXPECT_EQ(m.bytes, 300 + m.incomplete_bytes);
  EXPECT_THAT(plan_removal(m, first).blobs, ElementsAre("config1"));
  EXPECT_EQ(plan_removal(m, first).bytes, 100u);

  remove_revision(m, first, folder.path());
  EXPECT_THAT(names_in(folder.path() + "/" + repo + "blobs"),
              ElementsAre("config2", "gone.12345678.incomplete", "shared"));
  EXPECT_FALSE(fs::exists(cache.snapshot(kCommit)));
  EXPECT_EQ(cache.read_ref("main"), "");
  EXPECT_FALSE(cache.is_known_absent(kCommit, "vocab.txt"));
  EXPECT_FALSE(cache.read_tree(kCommit));
  EXPECT_TRUE(cache.has_file(kOther, "sub/copy"));
  remove_repo(scan_repo(folder.path(), "org/m"), folder.path());
  EXPECT_FALSE(fs::exists(cache.folder()));
  EXPECT_THROW(scan_repo(folder.path(), "org/m"), Error);
  EXPECT_TRUE(scan_cache(folder.path() + "/none").empty());
}

TEST(FindCachedModel, WhatIsMissing) {
  const TestFolder folder;
  const std::string snapshot = "models--org--m/snapshots/" + kCommit + "/";
  const ModelName name{"org/m", "", kCommit};
  const auto look = [&](std::string_view load_format = "auto", std::string tag = "") {
    return find_cached_model({"org/m", std::move(tag), kCommit}, load_format, folder.path());
  };
  EXPECT_THAT(look().why, HasSubstr("not on this machine"));
  folder.write("models--org--m/refs/x", kOther);
  EXPECT_THAT(look().why, HasSubstr("there is no"));
  folder.write(snapshot + "config.json", "{}");
  EXPECT_TRUE(look().model && !look().has_weights && !look().has_text);
  EXPECT_THAT(look().why, HasSubstr("weights is missing"));
  EXPECT_TRUE(look("dummy").has_weights);
  folder.write("models--org--m/.no_exist/" + kCommit + "/tokenizer.json", "");
  EXPECT_FALSE(look().has_text);  // the generation settings, for example, may be at the hub
  folder.write(snapshot + "tokenizer_config.json", "{}");
  folder.write("models--org--m/.no_exist/" + kCommit + "/generation_config.json", "");
  EXPECT_TRUE(look().has_text);
  folder.write(snapshot + "model.safetensors.index.json",
               R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  folder.write(snapshot + "1.safetensors", "");
  EXPECT_THAT(look().why, HasSubstr("2.safetensors is missing"));
  folder.write(snapshot + "2.safetensors", "");
  EXPECT_TRUE(look().has_weights);
  folder.write(snapshot + "model.safetensors", "");  // which the index does not list
  fs::remove(folder.path() + "/" + snapshot + "2.safetensors");
  EXPECT_TRUE(look().has_weights);
  fs::remove(folder.path() + "/" + snapshot + "model.safetensors");
  EXPECT_FALSE(look().has_weights);
  folder.write(snapshot + "2.safetensors", "");
  EXPECT_EQ(look().model->directory, folder.path() + "/models--org--m/snapshots/" + kCommit);
  EXPECT_FALSE(look("pt").has_weights);
  folder.write(snapshot + "m-Q4-00001-of-00002.gguf", "");
  EXPECT_FALSE(look("gguf").has_weights);
  EXPECT_THAT(look("gguf").why, HasSubstr("1 of 2 parts"));
  folder.write(snapshot + "m-Q4-00002-of-00002.gguf", "");
  EXPECT_TRUE(look("gguf").has_weights);
  EXPECT_EQ(look("auto", "q4").model->directory,
            folder.path() + "/" + snapshot + "m-Q4-00001-of-00002.gguf");
  EXPECT_TRUE(look("auto").model->directory.ends_with(kCommit));
}

}  // namespace
}  // namespace sluice
