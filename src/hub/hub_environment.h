// The environment variables of the Hugging Face hub and its cache. They are those of the
// huggingface_hub package, with the same meaning, so that both programs share one cache, one token
// and one mirror.
//
//   HubEnvironment::of_process().cache_directory();
//   HubSettings settings = HubEnvironment::of_process().settings();
#pragma once

#include <chrono>
#include <string>

namespace sluice {

// The settings of a hub client.
struct HubSettings {
  std::string cache;                      // directory
  std::string endpoint;                   // "https://huggingface.co", without a slash at the end
  std::string token;                      // empty: none. Never logged
  std::string token_source;               // "HF_TOKEN", or the path of the file that held it
  bool offline = false;                   // no request to the hub is allowed
  std::string offline_variable;           // the variable that sets `offline`
  bool symlinks = true;                   // snapshots are links into blobs/; else files are copied
  std::chrono::seconds etag_timeout{10};  // for an answer about a file
  std::chrono::seconds download_timeout{10};  // for the next bytes of a file
  std::string http_proxy;    // for http://, because libcurl does not read the variable
  std::string certificates;  // a file of certificates to trust; empty: the system's
};

// The variables; empty where unset.
struct HubEnvironment {
  std::string hf_hub_cache;           // HF_HUB_CACHE
  std::string huggingface_hub_cache;  // HUGGINGFACE_HUB_CACHE, its old name
  std::string hf_home;                // HF_HOME
  std::string xdg_cache_home;         // XDG_CACHE_HOME
  std::string home;                   // HOME

  std::string hf_endpoint;             // HF_ENDPOINT: a mirror
  std::string hf_token;                // HF_TOKEN
  std::string hugging_face_hub_token;  // HUGGING_FACE_HUB_TOKEN, its old name
  std::string hf_token_path;           // HF_TOKEN_PATH: the file of `hf auth login`
  std::string disable_implicit_token;  // HF_HUB_DISABLE_IMPLICIT_TOKEN
  std::string hf_hub_offline;          // HF_HUB_OFFLINE
  std::string transformers_offline;    // TRANSFORMERS_OFFLINE
  std::string etag_timeout;            // HF_HUB_ETAG_TIMEOUT, seconds
  std::string download_timeout;        // HF_HUB_DOWNLOAD_TIMEOUT, seconds
  std::string disable_symlinks;        // HF_HUB_DISABLE_SYMLINKS
  std::string disable_progress_bars;   // HF_HUB_DISABLE_PROGRESS_BARS
  // HTTP_PROXY (libcurl reads http_proxy, https_proxy, HTTPS_PROXY, NO_PROXY...)
  std::string http_proxy;
  std::string ssl_cert_file;  // SSL_CERT_FILE, else REQUESTS_CA_BUNDLE, else CURL_CA_BUNDLE

  // `cache`: a directory that overrides the variables; empty: no override.
  static HubEnvironment of_process(const std::string& cache = "");

  // HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else
  // XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Every path is expanded as in
  // expand_path.h.
  std::string cache_directory() const;
  // The variable that forbids requests to the hub, and is 1, on, yes or true; empty if there is
  // none.
  std::string offline_variable() const;
  // Unless HF_HUB_DISABLE_PROGRESS_BARS is 1, on, yes or true.
  bool shows_progress() const;
  // Reads the token's file if no variable holds a token. Error{kBadInput} names a variable with an
  // unusable value.
  HubSettings settings() const;

 private:
  std::string huggingface_home() const;
  std::string expanded(const std::string& path) const;
};

}  // namespace sluice
