// Answers of a hub (hub/http_message.h, hub/repo_files.h, hub/file_choice.h): headers, addresses,
// lists of files, indexes. The first byte selects the kind. An accepted answer cannot lead out of a
// folder or beyond the limits.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/files/weight_map.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "hub/file_choice.h"
#include "hub/http_message.h"
#include "hub/hub_errors.h"
#include "hub/repo_files.h"

namespace sluice::fuzz {
namespace {

bool is_plain(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 127; });
}

void check_file(const RepoFile& file) {
  const std::string path = "/" + file.path + "/";
  must_hold(file.path.front() != '/' && path.find("/../") == std::string::npos &&
                path.find("/./") == std::string::npos,
            "a path beneath");
  must_hold(
      path.find("//") == std::string::npos && file.path.find_first_of("\\:\n") == std::string::npos,
      "a path of names");
  must_hold(file.size <= RepoLimits{}.max_file_bytes, "a size within the limit");
  must_hold(file.digest().empty() || is_hex(file.digest(), 40) || is_hex(file.digest(), 64),
            "a digest or none");
}

void check_url(const Url& url) {
  must_hold(url.scheme == "http" || url.scheme == "https", "http or https");
  must_hold(url.port > 0 && url.port < 65536 && url.target.starts_with('/'), "a port and a path");
  must_hold(is_plain(url.text()) && url.host.find('@') == std::string::npos,
            "no user, nothing invisible");
  const auto again = parse_hub_url(url.text());
  must_hold(again && same_origin(*again, url) && again->target == url.target,
            "what is written reads the same");
}

void read_head(std::string_view text) {
  HttpHead head;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (!head.add_line(text.substr(begin, end - begin))) return;
    begin = end;
  }
  if (const auto wait = asked_to_wait(head))
    must_hold(wait->count() >= 0 && wait->count() <= 1'000'000, "a wait that ends");
  if (const auto range = parse_content_range(head.get("Content-Range")))
    must_hold(range->first <= range->last && range->last < range->size, "a range within");
  const Url base{"https", "hub.example", 443, "/a/b"};
  if (const auto next = resolve_location(base, head.get("Location"))) check_url(*next);
  if (const auto next = resolve_location(base, next_link(head.get("Link")))) check_url(*next);
  const std::string words = explain_status(head, {"org/m", "main", ""}, {});
  must_hold(!words.empty() && words.find('\r') == std::string::npos, "words on one line");
}

void read_list(std::string_view text) {
  std::vector<RepoFile> files;
  append_tree_page(text, files);
  for (const RepoFile& file : files) check_file(file);
  for (const RepoFile& file : choose_text_files(files))
    must_hold(file.path != "model.safetensors", "weights are no text");
  std::vector<std::string> names;
  for (const RepoFile& file : files) names.push_back(file.path);
  if (const auto choice = choose_weights(names, formats_of("auto"), ""))
    for (const std::string& name : choice->names)
      must_hold(is_plain_path(name),
                "weights by plain names, GGUF files in folders of plain names");
}

void read_cached_list(std::string_view text) {
  const auto files = parse_tree_cache(text);
  if (!files) return;
  for (const RepoFile& file : *files) check_file(file);
  if (files->size() < 100)
    must_hold(parse_tree_cache(tree_cache_text(*files)).has_value(), "what is written can be read");
}

}  // namespace

void run_one(std::string_view input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  try {
    switch (input[0] % 6) {
      case 0:
        return read_head(text);
      case 1:
        return read_list(text);
      case 2:
        return read_cached_list(text);
      case 3:
        must_hold(is_hex(commit_of_reply(text), 40), "a commit");
        return;
      case 4:
        for (const std::string& shard : shards_of(read_weight_map(text, "index"), "index"))
          must_hold(is_plain_file_name(shard), "a plain name");
        return;
      default:
        if (const auto url = parse_hub_url(text)) check_url(*url);
        matches_glob(text.substr(0, text.size() / 2), text.substr(text.size() / 2));
    }
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  const std::string sha1(40, 'a'), sha256(64, 'b');
  return {
      "0HTTP/1.1 302 Found\r\nLocation: https://cdn.example:444/x?y=z#f\r\nX-Linked-Etag: \"" +
          sha256 + "\"\r\nX-Linked-Size: 99\r\nX-Error-Code: GatedRepo\r\n\r\n",
      "0HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-9/20\r\nETag: W/\"" + sha1 +
          "\"\r\nContent-Length: 5\r\n",
      "0HTTP/1.1 429 x\r\nRetry-After: 5\r\nRateLimit: \"api\";r=0;t=55\r\nLink: </api?cursor=2>; "
      "rel=\"next\", <../x>; rel=prev\r\n",
      "1[{\"type\":\"file\",\"path\":\"a/b.json\",\"size\":3,\"oid\":\"" + sha1 +
          "\"},{\"type\":\"directory\",\"path\":\"a\",\"oid\":\"\",\"size\":0}]",
      "1[{\"type\":\"file\",\"path\":\"model.safetensors\",\"size\":134,\"oid\":\"" + sha1 +
          "\",\"lfs\":{\"oid\":\"" + sha256 + "\",\"size\":9,\"pointerSize\":134},\"xetHash\":\"" +
          sha256 + "\"},{\"path\":\"m-Q4_K_M-00001-of-00002.gguf\",\"size\":1}]",
      "2{\"format_version\":1,\"files\":{\"config.json\":{\"size\":519,\"blob_id\":\"" + sha1 +
          "\"},\"w.bin\":{\"size\":9,\"blob_id\":\"" + sha1 + "\",\"lfs_sha256\":\"" + sha256 +
          "\",\"lfs_size\":9}}}",
      "3{\"id\":\"org/m\",\"sha\":\"" + sha1 + "\",\"siblings\":[{\"rfilename\":\"config.json\"}]}",
      "4{\"metadata\":{\"total_size\":9},\"weight_map\":{\"a.weight\":\"model-00001-of-00002."
      "safetensors\",\"b\":\"model-00002-of-00002.safetensors\"}}",
      "5https://[::1]:8443/a/b?c=d#e",
      "5http://hub.example/models/a*[!b-d]?.json",
  };
}

}  // namespace sluice::fuzz
