#include "server/core/access.h"

#include "base/digest.h"
#include "base/hash.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

constexpr std::uint64_t kAdminKeyId = 1;

std::string_view presented_key(const HttpRequest& head) {
  const std::string* authorization = head.header("authorization");
  if (authorization && authorization->size() > 7) {
    std::string scheme = authorization->substr(0, 7);
    for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if (scheme == "bearer ") return std::string_view(*authorization).substr(7);
  }
  const std::string* key = head.header("x-api-key");
  return key ? std::string_view(*key) : std::string_view();
}

// The same in every run, and no key can be read from it.
std::string owner_of_key(std::string_view key) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(key)));
  return "sha256:" + digest.hex().substr(0, 32);
}

template <std::size_t N>
bool equal_in_constant_time(const std::array<std::uint64_t, N>& a,
                            const std::array<std::uint64_t, N>& b) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < N; ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

KeyPipeline::KeyPipeline(const std::vector<std::string>& api_keys, const std::string& admin_key) {
  for (std::uint64_t& word : secret_) word = random_u64();
  for (const std::string& key : api_keys)
    if (!key.empty()) api_.push_back(digest(key));
  if (!admin_key.empty()) admin_ = digest(admin_key);
}

// Four keyed 64-bit lanes; the keys of the lanes are drawn at start-up and never leave the process.
KeyPipeline::Digest KeyPipeline::digest(std::string_view key) const {
  Digest out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = hash_combine(hash_bytes(key, secret_[2 * i]), secret_[2 * i + 1]);
  return out;
}

std::optional<Fault> KeyPipeline::authorize(Access access, HttpRequest& head) const {
  if (access == Access::kOpen) return std::nullopt;
  if (!has_keys()) {
    if (access == Access::kAdmin && !head.from_this_machine)
      return Fault{403, "admin_only", "",
                   "Without keys this route answers callers on the server's own machine only. "
                   "Start the server with "
                   "--admin-api-key to use it from elsewhere."};
    head.admin = head.from_this_machine;
    return std::nullopt;
  }
  const std::string_view key = presented_key(head);
  const Digest presented = digest(key);
  const bool is_admin = admin_ && equal_in_constant_time(presented, *admin_);
  std::uint64_t key_id = 0;
  for (std::size_t i = 0; i < api_.size(); ++i)
    if (equal_in_constant_time(presented, api_[i]))
      key_id = hash_combine(presented[0], kAdminKeyId + 1);
  if (is_admin) key_id = kAdminKeyId;
  if (access == Access::kAdmin && !is_admin && (key_id != 0 || !admin_)) {
    return Fault{403, "admin_only", "",
                 admin_ ? "This route needs the admin key."
                        : "This route needs an admin key, and the server has none: start it with "
                          "--admin-api-key."};
  }
  // Without API keys, an admin key guards the admin routes alone.
  if (key_id == 0 && api_.empty() && access != Access::kAdmin && key.empty()) return std::nullopt;
  if (key_id == 0) {
    if (key.empty())
      return Fault{401, "missing_api_key", "",
                   "Send an API key in the header `Authorization: Bearer KEY`."};
    return Fault{401, "invalid_api_key", "", "The API key is not one of this server's."};
  }
  head.key_id = key_id;
  head.owner = is_admin ? "admin" : owner_of_key(key);
  head.admin = is_admin;
  return std::nullopt;
}

}  // namespace sluice
