#include "hub/hub_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace sluice {
namespace {

std::string token_words(const HubSettings& settings) {
  return settings.token.empty()
             ? "no token was sent: set HF_TOKEN to one of https://huggingface.co/settings/tokens"
             : fmt::format("the token of {} was sent", settings.token_source);
}

std::string what_of(const HubQuestion& q) {
  return q.path.empty() ? q.repo_id : fmt::format("{} of {}", q.path, q.repo_id);
}

}  // namespace

std::string explain_status(const HttpHead& head, const HubQuestion& q,
                           const HubSettings& settings) {
  const int status = head.status();
  const std::string_view code = head.get("X-Error-Code"), message = head.get("X-Error-Message");
  const bool has_token = !settings.token.empty();
  if (code == "GatedRepo")
    return fmt::format(
        "{} is gated: accept its terms at {}/{}{}", q.repo_id, settings.endpoint, q.repo_id,
        has_token ? fmt::format(" with the account of the token of {}", settings.token_source)
                  : ", then set HF_TOKEN to a token of that account "
                    "(https://huggingface.co/settings/tokens)");
  if (code == "RevisionNotFound")
    return fmt::format(
        "{} has no revision \"{}\" at {}; --revision takes a branch, a tag or a commit, and "
        "{}/{}/tree/main shows them",
        q.repo_id, q.revision, settings.endpoint, settings.endpoint, q.repo_id);
  if (code == "EntryNotFound")
    return fmt::format("{} has no file {} at revision {}", q.repo_id, q.path, q.revision);
  if (message == "Access to this resource is disabled.")
    return fmt::format("access to {} is disabled by {}; choose another model", q.repo_id,
                       settings.endpoint);
  if (status == 401 && has_token && code != "RepoNotFound")
    return fmt::format(
        "{} refuses the token of {} (401): it is wrong or expired; make another at "
        "https://huggingface.co/settings/tokens",
        settings.endpoint, settings.token_source);
  if (status == 401 || status == 404 || code == "RepoNotFound")
    return fmt::format("there is no {} at {} ({}), or it is private; check the spelling{}{}",
                       what_of(q), settings.endpoint, status,
                       status == 404 && code.empty() && q.path.empty() ? " and the revision" : "",
                       "; " + token_words(settings));
  if (status == 403)
    return fmt::format(
        "{} does not allow access to {} (403); {}", settings.endpoint, what_of(q),
        has_token ? fmt::format("the token of {} lacks the right to read it", settings.token_source)
                  : token_words(settings));
  if (status == 416)
    return fmt::format(
        "{} is shorter at the hub than the hub's own list says (416); try again, or take another "
        "revision",
        what_of(q));
  if (status == 429) {
    const auto wait = asked_to_wait(head);
    return fmt::format(
        "{} limits the rate of requests (429){}; {}", settings.endpoint,
        wait ? fmt::format(" and asks to wait {} s", wait->count()) : "",
        has_token ? "try again later" : "set HF_TOKEN, which raises the limit, or try again later");
  }
  if (status >= 500)
    return fmt::format("{} is in trouble ({}) and stayed so for all tries; try again later",
                       settings.endpoint, status);
  if (status >= 300 && status < 400)
    return fmt::format(
        "{} sends requests for {} around ({}) without an end or to no place that can be used; "
        "check HF_ENDPOINT",
        settings.endpoint, what_of(q), status);
  return fmt::format("{} answers {} to a request for {}; check HF_ENDPOINT", settings.endpoint,
                     status, what_of(q));
}

std::string explain_transfer(TransferError error, std::string_view detail, std::string_view host,
                             const HubSettings& settings) {
  switch (error) {
    case TransferError::kName:
      return fmt::format(
          "the host {} (or its proxy) is not known ({}); is this machine on the network? "
          "HF_ENDPOINT names a mirror, "
          "HTTPS_PROXY a proxy",
          host, detail);
    case TransferError::kConnect:
      return fmt::format(
          "{} does not take the connection ({}); check the network, HF_ENDPOINT and, where a proxy "
          "is set, HTTPS_PROXY or "
          "HTTP_PROXY",
          host, detail);
    case TransferError::kTls:
      return fmt::format(
          "the connection to {} cannot be made safe ({}); SSL_CERT_FILE names a file of "
          "certificates to trust",
          host, detail);
    case TransferError::kTimeout:
      return fmt::format(
          "{} was silent for too long; HF_HUB_ETAG_TIMEOUT ({} s) and HF_HUB_DOWNLOAD_TIMEOUT ({} "
          "s) can be raised",
          host, settings.etag_timeout.count(), settings.download_timeout.count());
    case TransferError::kBroken:
      return fmt::format(
          "the connection to {} broke off again and again ({}); what has come is kept, so try "
          "again",
          host, detail);
    case TransferError::kTooLarge:
      return fmt::format("{} sends more than such an answer may have; check HF_ENDPOINT", host);
    case TransferError::kStopped:
      return fmt::format("the transfer from {} was stopped", host);
    default:
      return fmt::format("the transfer from {} failed: {}", host, detail);
  }
}

bool is_passing(int status) {
  constexpr int kPassing[] = {408, 425, 429, 500, 502, 503, 504};
  return std::ranges::find(kPassing, status) != std::end(kPassing);
}

int tries_after(TransferError error) {
  switch (error) {
    case TransferError::kName:
      return 1;
    case TransferError::kConnect:
      return 2;
    case TransferError::kTimeout:
      return 3;
    case TransferError::kBroken:
      return Patience::kTries;
    default:
      return 0;
  }
}

std::optional<std::chrono::milliseconds> Patience::next(int tries,
                                                        std::optional<std::chrono::seconds> asked) {
  if (num_waits_ >= tries || (asked && *asked > kLongest)) return std::nullopt;
  const int doubled = std::min(num_waits_++, 4);
  if (asked) return *asked;
  std::random_device chance;
  return std::chrono::milliseconds(
      (500 << doubled) + static_cast<int>(chance() % static_cast<unsigned>(125 << doubled)));
}

}  // namespace sluice
