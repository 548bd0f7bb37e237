#include "storage/response_store.h"

#include "base/log.h"

namespace sluice {

ResponseStore::ResponseStore(const Limits& memory) : limits_(memory) {}

ResponseStore::ResponseStore(const Limits& memory, const std::string& path,
                             const ResponseFile::Limits& file)
    : limits_(memory), file_(std::make_unique<ResponseFile>(path, file)) {}

ResponseStore::~ResponseStore() = default;

void ResponseStore::remove(List::iterator at) {
  bytes_ -= (*at)->bytes();
  by_id_.erase((*at)->id);
  records_.erase(at);
}

// With the mutex held.
bool ResponseStore::keep_in_memory(Record record) {
  const std::size_t bytes = record->bytes();
  if (const auto found = by_id_.find(record->id); found != by_id_.end()) remove(found->second);
  if (bytes > limits_.max_bytes) return false;
  records_.push_front(std::move(record));
  by_id_.emplace(records_.front()->id, records_.begin());
  bytes_ += bytes;
  while (bytes_ > limits_.max_bytes || records_.size() > limits_.max_responses)
    remove(std::prev(records_.end()));
  return true;
}

bool ResponseStore::put(Record record) {
  const bool is_written = file_ && record->is_done;
  const std::lock_guard lock(mutex_);
  const bool is_kept = keep_in_memory(record);
  // Within the mutex, so that an erasure that follows comes behind it in the file, too.
  if (is_written) write(std::move(record));
  return is_kept || is_written;
}

// With the mutex held.
void ResponseStore::write(Record record) {
  const auto written = [this, record](bool is_in_file) {
    const auto found = waiting_.find(record->id);
    if (found != waiting_.end() && found->second == record) waiting_.erase(found);
    if (!is_in_file && unwritten_++ == 0)
      log_error("responses are lost for the file that keeps them; {} counts them",
                "sluice:response_store_unwritten_total");
  };
  waiting_[record->id] = record;
  const auto written_later = [this, written](bool is_in_file) {
    const std::lock_guard lock(mutex_);
    written(is_in_file);
  };
  if (!file_->put(record, written_later)) written(false);
}

// With the mutex held.
ResponseStore::Record ResponseStore::find_in_memory(const std::string& id,
                                                    const std::string& owner) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    if ((*found->second)->owner != owner) return nullptr;
    records_.splice(records_.begin(), records_, found->second);
    return records_.front();
  }
  const auto waits = waiting_.find(id);
  return waits != waiting_.end() && waits->second->owner == owner ? waits->second : nullptr;
}

Result<ResponseStore::Record> ResponseStore::find(const std::string& id, const std::string& owner) {
  std::uint64_t erasures = 0;
  {
    const std::lock_guard lock(mutex_);
    if (Record found = find_in_memory(id, owner)) return found;
    if (!file_ || leaving_.contains({id, owner})) return Record();
    erasures = erasures_;
  }
  Result<Record> found = file_->find(id, owner);
  if (!found || !*found) return found;
  const std::lock_guard lock(mutex_);
  // What was erased meanwhile must not come back.
  if (erasures == erasures_) keep_in_memory(*found);
  return found;
}

void ResponseStore::erase(const std::string& id, const std::string& owner,
                          std::function<void(Result<bool>)> done) {
  bool was_here = false;
  {
    const std::lock_guard lock(mutex_);
    was_here = find_in_memory(id, owner) != nullptr;
    if (const auto found = by_id_.find(id); was_here && found != by_id_.end())
      remove(found->second);
    if (was_here) waiting_.erase(id);
    ++erasures_;
    if (file_) leaving_.emplace(id, owner);
  }
  if (!file_) return done(was_here);
  file_->erase(id, owner, [this, key = Key(id, owner), was_here, done](Result<bool> was_in_file) {
    {
      const std::lock_guard lock(mutex_);
      leaving_.erase(key);
    }
    done(was_in_file.ok() ? Result<bool>(was_here || *was_in_file) : std::move(was_in_file));
  });
}

ResponseStore::Figures ResponseStore::figures() const {
  Figures out;
  {
    const std::lock_guard lock(mutex_);
    out.memory_responses = records_.size();
    out.memory_bytes = bytes_;
    out.unwritten = unwritten_;
  }
  if (!file_) return out;
  const ResponseFile::Totals totals = file_->totals();
  out.has_file = true;
  out.file_responses = totals.responses;
  out.file_bytes = totals.bytes;
  out.waiting_bytes = totals.waiting_bytes;
  out.write_failures = totals.failures;
  return out;
}

}  // namespace sluice
