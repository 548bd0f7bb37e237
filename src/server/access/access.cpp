#include "server/access/access.h"

#include <charconv>
#include <utility>

#include "base/hash.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

constexpr std::string_view kAdmin = "admin";
constexpr std::string_view kAdminName = "admin-api-key";
constexpr std::string_view kSocketName = "admin-socket";

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

using Digest = std::array<std::uint64_t, 4>;

// Of 64 hexadecimal digits.
Digest words_of(std::string_view hex) {
  Digest words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    std::from_chars(hex.data() + 16 * i, hex.data() + 16 * (i + 1), words[i], 16);
  return words;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

std::shared_ptr<RequestUse> use_of(std::string_view key_name, std::shared_ptr<KeyAccount> account) {
  auto use = std::make_shared<RequestUse>();
  use->key_name = key_name;
  use->account = std::move(account);
  return use;
}

}  // namespace

KeyPipeline::KeyPipeline(Sources sources) : sources_(std::move(sources)), secret_(random_u64()) {
  keys_ = make_keys(sources_.key_file.empty() ? std::vector<ApiKey>()
                                              : read_key_file(sources_.key_file));
}

std::size_t KeyPipeline::reload() {
  if (sources_.key_file.empty()) return 0;
  const std::vector<ApiKey> read = read_key_file(sources_.key_file);
  std::shared_ptr<const KeySet> keys = make_keys(read);
  std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
  return read.size();
}

std::shared_ptr<const KeyPipeline::KeySet> KeyPipeline::keys() const {
  std::lock_guard lock(mutex_);
  return keys_;
}

bool KeyPipeline::has_users() const {
  return keys()->has_users;
}

std::shared_ptr<const KeyPipeline::KeySet> KeyPipeline::make_keys(
    const std::vector<ApiKey>& file_keys) {
  auto keys = std::make_shared<KeySet>();
  const auto add = [&](std::string_view digest, std::string name, std::string owner,
                       bool is_admin) -> Entry& {
    Entry entry{words_of(digest), std::move(name), std::move(owner), 0, is_admin, nullptr};
    entry.id = hash_bytes(entry.owner, secret_) | 1;  // 0 is nobody's
    keys->has_admins |= is_admin;
    keys->entries.push_back(std::move(entry));
    return keys->entries.back();
  };
  std::size_t number = 0;
  for (const std::string& key : sources_.api_keys) {
    ++number;
    if (key.empty()) continue;
    const std::string digest = key_digest(key);
    // A key that is given without a name is known by its digest in every run.
    add(digest, fmt::format("api-key-{}", number), "sha256:" + digest.substr(0, 32), false);
    keys->has_users = true;
  }
  std::lock_guard lock(mutex_);
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts;
  for (const ApiKey& key : file_keys) {
    Entry& entry = add(key.digest, key.name, "key:" + key.name, key.is_admin);
    keys->has_users = true;
    // What a key has used outlives a reload.
    const auto known = accounts_.find(entry.owner);
    entry.account =
        known != accounts_.end() ? known->second : std::make_shared<KeyAccount>(key.name);
    entry.account->set_limits(key.limits);
    accounts.emplace(entry.owner, entry.account);
  }
  accounts_ = std::move(accounts);
  if (!sources_.admin_key.empty())
    add(key_digest(sources_.admin_key), std::string(kAdminName), std::string(kAdmin), true);
  return keys;
}

std::optional<Fault> KeyPipeline::authorize(Access access, HttpRequest& head) const {
  if (head.peer == Peer::kAdminSocket) {
    // Who may open the socket is decided by its mode.
    head.owner = kAdmin;
    head.key_id = hash_bytes(kAdmin, secret_) | 1;
    head.admin = true;
    head.use = use_of(kSocketName, nullptr);
    return std::nullopt;
  }
  if (access == Access::kOpen || (access == Access::kMetrics && sources_.has_open_metrics))
    return std::nullopt;
  const std::shared_ptr<const KeySet> keys = this->keys();
  const std::string_view presented = presented_key(head);
  const Digest digest = words_of(key_digest(presented));
  const Entry* found = nullptr;
  for (const Entry& entry : keys->entries)
    if (equal_in_constant_time(digest, entry.digest)) found = &entry;
  // The log names the key of a request that is refused, too.
  if (found) head.use = use_of(found->name, nullptr);
  if (access == Access::kAdmin && sources_.has_admin_socket)
    return Fault{403, "admin_only", "",
                 "This server is administrated over the socket of --admin-socket, not over its "
                 "port."};
  if (keys->entries.empty()) {
    if (access == Access::kAdmin && head.peer == Peer::kRemote)
      return Fault{403, "admin_only", "",
                   "Without keys this route answers callers on the server's own machine only. "
                   "Start the server with --admin-api-key, or with --admin-socket, to use it from "
                   "elsewhere."};
    head.admin = head.peer != Peer::kRemote && !sources_.has_admin_socket;
    head.use = use_of({}, nullptr);
    return std::nullopt;
  }
  if (access == Access::kAdmin && (found ? !found->is_admin : !keys->has_admins))
    return Fault{403, "admin_only", "",
                 keys->has_admins
                     ? "This route needs a key with the role of an administrator."
                     : "This route needs an admin key, and the server has none: start it with "
                       "--admin-api-key or --admin-socket."};
  // Without other keys, an admin key guards the admin routes alone.
  if (!found && !keys->has_users && access != Access::kAdmin && presented.empty()) {
    head.use = use_of({}, nullptr);
    return std::nullopt;
  }
  if (!found) {
    if (presented.empty())
      return Fault{401, "missing_api_key", "",
                   "Send an API key in the header `Authorization: Bearer KEY`."};
    return Fault{401, "invalid_api_key", "", "The API key is not one of this server's."};
  }
  head.key_id = found->id;
  head.owner = found->owner;
  head.admin = found->is_admin && !sources_.has_admin_socket;
  head.use = use_of(found->name, found->account);
  return std::nullopt;
}

}  // namespace sluice
