#include "storage/chat_store.h"

#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kWhat = "The store of chats";
constexpr int kReadWaitMs = 250;
// Of chats on their way to the file.
constexpr std::size_t kMaxWaitingBytes = std::size_t{256} << 20;

constexpr DatabaseKind kKind{
    .what = "chats of the page", .application = 0x536c7063, .version = 1, .schema = R"(
CREATE TABLE chats (
  owner TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, updated INTEGER NOT NULL,
  bytes INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (owner, id));
CREATE INDEX heads ON chats (owner, updated, id, title, bytes);
)"};

Fault too_much(std::int64_t chats, std::int64_t bytes, const ChatStore::Limits& limits) {
  return Fault{413, "store_full", "",
               fmt::format("With this chat there would be {} chats with {} bytes; {} chats with {} "
                           "bytes are kept for a key. Delete some.",
                           chats, bytes, limits.max_chats, limits.max_bytes)};
}

}  // namespace

ChatStore::ChatStore(const std::string& path, const Limits& limits)
    : limits_(limits), reader_(path, kKind, kReadWaitMs), writer_(path, kKind, kMaxWaitingBytes) {}

template <class T, class Read>
Result<T> ChatStore::read(Read&& read) {
  try {
    const std::lock_guard lock(mutex_);
    return read();
  } catch (const StorageError& e) {
    return storage_fault(e, kWhat);
  }
}

Result<std::vector<ChatHead>> ChatStore::list(const std::string& owner) {
  return read<std::vector<ChatHead>>([&] {
    std::vector<ChatHead> heads;
    Statement query = reader_.prepare(
        "SELECT id, title, updated FROM chats WHERE owner = ?1 ORDER BY updated DESC, id");
    query.bind(1, owner);
    while (query.step()) heads.push_back({query.text(0), query.text(1), query.integer(2)});
    return heads;
  });
}

Result<std::optional<std::string>> ChatStore::load(const std::string& id,
                                                   const std::string& owner) {
  return read<std::optional<std::string>>([&]() -> std::optional<std::string> {
    Statement query = reader_.prepare("SELECT body FROM chats WHERE owner = ?1 AND id = ?2");
    if (!query.bind(1, owner).bind(2, id).step()) return std::nullopt;
    return query.text(0);
  });
}

void ChatStore::save(ChatHead head, const std::string& owner, std::string body,
                     std::function<void(std::optional<Fault>)> done) {
  struct Change {
    ChatHead head;
    std::string owner, body;
    std::optional<Fault> fault;
  };
  auto change =
      std::make_shared<Change>(Change{std::move(head), owner, std::move(body), std::nullopt});
  const auto bytes = static_cast<std::int64_t>(change->body.size() + change->head.title.size());
  const auto run = [this, change, bytes](Database& file) {
    const ChatHead& chat = change->head;
    Statement others = file.prepare(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM chats WHERE owner = ?1 AND id <> ?2");
    others.bind(1, change->owner).bind(2, chat.id).step();
    const std::int64_t num_chats = others.integer(0) + 1, num_bytes = others.integer(1) + bytes;
    change->fault.reset();
    if (num_chats > limits_.max_chats || num_bytes > limits_.max_bytes) {
      change->fault = too_much(num_chats, num_bytes, limits_);
      return;
    }
    file.prepare(
            "INSERT INTO chats (owner, id, title, updated, bytes, body) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (owner, id) DO UPDATE SET "
            "title = ?3, updated = ?4, bytes = ?5, body = ?6")
        .bind(1, change->owner)
        .bind(2, chat.id)
        .bind(3, chat.title)
        .bind(4, chat.updated)
        .bind(5, bytes)
        .bind(6, change->body)
        .step();
  };
  const auto heard = [change, done](const StorageError* error) {
    done(error ? storage_fault(*error, kWhat) : std::move(change->fault));
  };
  if (!writer_.submit({.run = run, .done = heard, .bytes = static_cast<std::size_t>(bytes) + 1}))
    done(Fault{503, "store_unavailable", "",
               fmt::format("{} cannot be used now: too much waits to be written, or the file is "
                           "damaged.",
                           kWhat)});
}

void ChatStore::erase(const std::string& id, const std::string& owner,
                      std::function<void(Result<bool>)> done) {
  auto was_there = std::make_shared<bool>(false);
  writer_.submit({.run =
                      [id, owner, was_there](Database& file) {
                        file.prepare("DELETE FROM chats WHERE owner = ?1 AND id = ?2")
                            .bind(1, owner)
                            .bind(2, id)
                            .step();
                        *was_there = file.changes() > 0;
                      },
                  .done =
                      [was_there, done = std::move(done)](const StorageError* error) {
                        done(error ? Result<bool>(storage_fault(*error, kWhat))
                                   : Result<bool>(*was_there));
                      }});
}

}  // namespace sluice
