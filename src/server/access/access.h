// Who may call what (R17): a route's access class is looked up after routing, and what is not
// allowed is refused.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/access/key_file.h"
#include "server/http/http.h"

namespace sluice {

enum class Access : std::uint8_t {
  kOpen,     // anybody
  kUser,     // any key, where keys are configured
  kAdmin,    // the admin socket, or a key of that role; see authorize()
  kMetrics,  // as kUser, or as kOpen with --metrics-open
};

// The keys of the server: of users, of a file (key_file.h) and of administration. Kept and
// compared as SHA-256 digests, in constant time. Any thread.
class KeyPipeline {
 public:
  struct Sources {
    std::vector<std::string> api_keys;
    std::string admin_key;
    std::string key_file;           // empty: none
    bool has_admin_socket = false;  // then administration is over that socket alone
    bool has_open_metrics = false;
  };
  // Error{kBadInput}: the file of keys is faulty.
  explicit KeyPipeline(Sources sources);

  // Whether callers need a key, beyond that of the administrative routes.
  bool has_users() const;
  // Reads the file of keys again: the number of its keys. Error{kBadInput}: it is faulty, and the
  // keys stay as they were. Without a file nothing happens.
  std::size_t reload();

  // Sets head.key_id (0 without keys), owner, admin and use; a fault (401, 403) says why the caller
  // may not, and sets no more than the name of a key that is known. Administration is open to
  // callers on the admin socket, and where the server has none to keys of that role, or without any
  // keys to callers on this machine.
  std::optional<Fault> authorize(Access access, HttpRequest& head) const;

 private:
  struct Entry {
    std::array<std::uint64_t, 4> digest;
    std::string name, owner;
    std::uint64_t id = 0;
    bool is_admin = false;
    std::shared_ptr<KeyAccount> account;
  };
  struct KeySet {
    std::vector<Entry> entries;
    bool has_users = false, has_admins = false;
  };
  std::shared_ptr<const KeySet> make_keys(const std::vector<ApiKey>& file_keys);
  std::shared_ptr<const KeySet> keys() const;

  const Sources sources_;
  const std::uint64_t secret_;  // of this process: ids say nothing to an observer
  mutable std::mutex mutex_;
  std::shared_ptr<const KeySet> keys_;                           // guarded by mutex_
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts_;  // by owner; guarded by mutex_
};

}  // namespace sluice
