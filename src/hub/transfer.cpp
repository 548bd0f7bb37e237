#include "hub/transfer.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <exception>

#include "base/build.h"
#include "base/error.h"

namespace sluice {

struct CurlLibrary {
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

namespace {

// Certificate stores of common systems; libcurl only knows that of the system on which it was
// built.
constexpr const char* kCertificateFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // newer RHEL
    "/etc/ssl/cert.pem",                                  // Alpine
};

constexpr long kMinBytesPerSecond = 1024;

template <class Function>
void bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, "libcurl.so.4 of this system has no {}; install libcurl4", name);
}

TransferError error_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return TransferError::kNone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return TransferError::kName;
    case CURLE_COULDNT_CONNECT:
      return TransferError::kConnect;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
      return TransferError::kTls;
    case CURLE_OPERATION_TIMEDOUT:
      return TransferError::kTimeout;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WEIRD_SERVER_REPLY:
      return TransferError::kBroken;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
      return TransferError::kStopped;
    case CURLE_FILESIZE_EXCEEDED:
      return TransferError::kTooLarge;
    default:
      return TransferError::kOther;
  }
}

// The common state of one request's callbacks. libcurl is C, so no exception may pass through it.
struct Running {
  const TransferRequest& request;
  const TransferEvents& events;
  const std::atomic<bool>* stop;
  TransferOutcome outcome;
  std::uint64_t num_body_bytes = 0;
  bool head_told = false;
  bool too_large = false;
  std::exception_ptr thrown;

  // Called before the first byte of the body, or at the end if there is none.
  bool tell_head() {
    if (head_told) return true;
    head_told = true;
    return !events.on_head || events.on_head(outcome.head);
  }

  bool take_header(std::string_view line) {
    too_large = too_large || !outcome.head.add_line(line);
    return !too_large;
  }

  bool take_body(std::string_view bytes) {
    num_body_bytes += bytes.size();
    too_large = request.max_body_bytes > 0 && num_body_bytes > request.max_body_bytes;
    if (too_large || !tell_head()) return false;
    if (events.on_body) return events.on_body(std::as_bytes(std::span(bytes)));
    outcome.body.append(bytes);
    return true;
  }
};

template <auto Take>
std::size_t receive(char* data, std::size_t size, std::size_t count, void* user) {
  Running& running = *static_cast<Running*>(user);
  try {
    return (running.*Take)({data, size * count})
               ? size * count
               : size * count + 1;  // any other value ends the request
  } catch (...) {
    running.thrown = std::current_exception();
    return size * count + 1;
  }
}

int watch_for_stop(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const std::atomic<bool>* const stop = static_cast<const Running*>(user)->stop;
  return stop != nullptr && stop->load(std::memory_order_relaxed) ? 1 : 0;
}

}  // namespace

std::shared_ptr<const CurlLibrary> open_curl_library() {
  // Never closed: libcurl and OpenSSL install handlers that run when the process ends.
  void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  const char* const why = library == nullptr ? dlerror() : nullptr;
  require(library != nullptr,
          "this needs libcurl, which cannot be opened: {}; install it (Debian: apt-get "
          "install libcurl4)",
          why == nullptr ? "no reason given" : why);
  auto functions = std::make_shared<CurlLibrary>();
  decltype(&curl_global_init) global_init = nullptr;
  bind(library, "curl_global_init", global_init);
  bind(library, "curl_easy_init", functions->easy_init);
  bind(library, "curl_easy_cleanup", functions->easy_cleanup);
  bind(library, "curl_easy_setopt", functions->easy_setopt);
  bind(library, "curl_easy_perform", functions->easy_perform);
  bind(library, "curl_easy_reset", functions->easy_reset);
  bind(library, "curl_easy_strerror", functions->easy_strerror);
  bind(library, "curl_slist_append", functions->slist_append);
  bind(library, "curl_slist_free_all", functions->slist_free_all);
  require(global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start");
  return functions;
}

TransferSession::TransferSession(std::shared_ptr<const CurlLibrary> library,
                                 const HubSettings& settings, const std::atomic<bool>* stop)
    : library_(std::move(library)),
      http_proxy_(settings.http_proxy),
      certificates_(settings.certificates),
      stop_(stop),
      handle_(library_->easy_init()) {
  require(handle_ != nullptr, "libcurl gives no session");
  for (const char* path : kCertificateFiles)
    if (certificates_.empty() && access(path, R_OK) == 0) certificates_ = path;
}

TransferSession::~TransferSession() {
  library_->easy_cleanup(handle_);
}

TransferOutcome TransferSession::perform(const TransferRequest& request,
                                         const TransferEvents& events) {
  Running running{request, events, stop_, {}, 0, false, false, nullptr};
  const CurlLibrary& curl = *library_;
  curl.easy_reset(handle_);  // keeps the connections
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode code = curl.easy_setopt(handle_, option, value);
    require(code == CURLE_OK, "libcurl refuses option {} ({}); version 7.85 or newer is needed",
            static_cast<int>(option), curl.easy_strerror(code));
  };
  curl_slist* headers = nullptr;
  const auto add_header = [&](const std::string& line) {
    curl_slist* const longer = curl.slist_append(headers, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    headers = longer;
  };
  // Offsets count bytes, so compression is disabled.
  add_header("Accept-Encoding: identity");
  add_header(fmt::format("User-Agent: sluice/{}", kVersion));
  for (const std::string& line : request.headers) add_header(line);
  if (request.post) add_header("Expect:");  // no waiting for "100 Continue"
  if (!request.token.empty()) add_header("Authorization: Bearer " + request.token);
  std::string range;
  if (request.range) range = fmt::format("{}-{}", request.range->first, request.range->second);

  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_HTTP_VERSION,
      static_cast<long>(CURL_HTTP_VERSION_1_1));  // each thread has its own connection
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  if (request.post) {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.post->size()));
    set(CURLOPT_POSTFIELDS, request.post->data());
  }
  if (!range.empty()) set(CURLOPT_RANGE, range.c_str());
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, kMinBytesPerSecond);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.idle_timeout.count()));
  set(CURLOPT_TIMEOUT, static_cast<long>(request.total_timeout.count()));
  curl.easy_setopt(handle_, CURLOPT_BUFFERSIZE,
                   256L << 10);  // only a hint; libcurl refuses it after some failures
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  if (!certificates_.empty()) set(CURLOPT_CAINFO, certificates_.c_str());
  // libcurl reads http_proxy but not HTTP_PROXY, which a CGI program cannot trust. This is not a
  // CGI program.
  if (!http_proxy_.empty() && request.url.starts_with("http://"))
    set(CURLOPT_PROXY, http_proxy_.c_str());
  set(CURLOPT_HEADERFUNCTION, &receive<&Running::take_header>);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&running));
  set(CURLOPT_WRITEFUNCTION, &receive<&Running::take_body>);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&running));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &watch_for_stop);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&running));
  const CURLcode code = curl.easy_perform(handle_);
  curl.slist_free_all(headers);
  if (running.thrown) std::rethrow_exception(running.thrown);

  TransferOutcome& outcome = running.outcome;
  outcome.error = running.too_large ? TransferError::kTooLarge : error_of(code);
  if (outcome.error != TransferError::kNone) outcome.detail = curl.easy_strerror(code);
  if (outcome.error == TransferError::kNone && !running.tell_head())
    outcome.error = TransferError::kStopped;
  return std::move(outcome);
}

}  // namespace sluice
