#include "storage/response_file.h"

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::string_view kWhat = "The store of responses";
constexpr int kReadWaitMs = 250;

// Triggers keep the sums, so a bound costs no scan and holds where two servers share the file.
constexpr DatabaseKind kKind{
    .what = "stored responses", .application = 0x536c7273, .version = 1, .schema = R"(
CREATE TABLE responses (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  previous_id TEXT NOT NULL, bytes INTEGER NOT NULL,
  response TEXT NOT NULL, input_items TEXT NOT NULL, messages TEXT NOT NULL);
CREATE TABLE totals (responses INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER added AFTER INSERT ON responses BEGIN
  UPDATE totals SET responses = responses + 1, bytes = bytes + NEW.bytes; END;
CREATE TRIGGER removed AFTER DELETE ON responses BEGIN
  UPDATE totals SET responses = responses - 1, bytes = bytes - OLD.bytes; END;
)"};

}  // namespace

ResponseFile::ResponseFile(const std::string& path, const Limits& limits)
    : limits_(limits),
      reader_(path, kKind, kReadWaitMs),
      writer_(path, kKind, limits.max_waiting_bytes) {
  try {
    read_totals(reader_);
  } catch (const StorageError& e) {
    fail(ErrorKind::kBadInput, "{} cannot be used for {}: {} ({})", path, kKind.what,
         trouble_text(e.trouble()), e.what());
  }
}

void ResponseFile::insert(Database& file, const StoredResponse& record) {
  file.prepare("DELETE FROM responses WHERE id = ?1").bind(1, record.id).step();
  file.prepare(
          "INSERT INTO responses (id, owner, previous_id, bytes, response, input_items, messages) "
          "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
      .bind(1, record.id)
      .bind(2, record.owner)
      .bind(3, record.previous_id)
      .bind(4, static_cast<std::int64_t>(record.bytes()))
      .bind(5, record.response)
      .bind(6, record.input_items)
      .bind(7, record.messages)
      .step();
}

void ResponseFile::read_totals(Database& file) {
  Statement totals = file.prepare("SELECT responses, bytes FROM totals");
  if (!totals.step()) throw StorageError(StorageTrouble::kDamaged, "the sums are missing");
  num_responses_ = totals.integer(0);
  num_bytes_ = totals.integer(1);
}

void ResponseFile::let_go_of_oldest(Database& file) {
  read_totals(file);
  while (num_responses_ > limits_.max_responses || num_bytes_ > limits_.max_bytes) {
    file.run("DELETE FROM responses WHERE seq = (SELECT min(seq) FROM responses)");
    if (file.changes() == 0) throw StorageError(StorageTrouble::kDamaged, "the sums are wrong");
    read_totals(file);
  }
}

bool ResponseFile::put(std::shared_ptr<const StoredResponse> record,
                       std::function<void(bool)> done) {
  const std::size_t bytes = record->bytes();
  if (std::cmp_greater(bytes, limits_.max_bytes)) return false;
  return writer_.submit(
      {.run =
           [this, record = std::move(record)](Database& file) {
             insert(file, *record);
             let_go_of_oldest(file);
           },
       .done = [done = std::move(done)](const StorageError* error) { done(error == nullptr); },
       .bytes = bytes,
       .may_wait = true});
}

Result<std::shared_ptr<const StoredResponse>> ResponseFile::find(const std::string& id,
                                                                 const std::string& owner) {
  const std::lock_guard lock(mutex_);
  try {
    Statement query = reader_.prepare(
        "SELECT previous_id, response, input_items, messages FROM responses "
        "WHERE id = ?1 AND owner = ?2");
    const bool is_there = query.bind(1, id).bind(2, owner).step();
    trouble_.reset();
    if (!is_there) return std::shared_ptr<const StoredResponse>();
    auto record = std::make_shared<StoredResponse>();
    record->id = id;
    record->owner = owner;
    record->previous_id = query.text(0);
    record->response = query.text(1);
    record->input_items = query.text(2);
    record->messages = query.text(3);
    record->is_done = true;
    return std::shared_ptr<const StoredResponse>(std::move(record));
  } catch (const StorageError& e) {
    if (trouble_ != e.trouble())
      log_error("{} cannot be read: {} ({})", kWhat, trouble_text(e.trouble()), e.what());
    trouble_ = e.trouble();
    return storage_fault(e, kWhat);
  }
}

void ResponseFile::erase(const std::string& id, const std::string& owner,
                         std::function<void(Result<bool>)> done) {
  auto was_there = std::make_shared<bool>(false);
  writer_.submit({.run =
                      [this, id, owner, was_there](Database& file) {
                        file.prepare("DELETE FROM responses WHERE id = ?1 AND owner = ?2")
                            .bind(1, id)
                            .bind(2, owner)
                            .step();
                        *was_there = file.changes() > 0;
                        read_totals(file);
                      },
                  .done =
                      [was_there, done = std::move(done)](const StorageError* error) {
                        done(error ? Result<bool>(storage_fault(*error, kWhat))
                                   : Result<bool>(*was_there));
                      }});
}

ResponseFile::Totals ResponseFile::totals() const {
  return {num_responses_, num_bytes_, writer_.waiting_bytes(), writer_.num_failures()};
}

}  // namespace sluice
