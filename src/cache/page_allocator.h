// Owners of the KV cache's pages. Host numbers only: the runner's pool holds the bytes.
//
// A page has one reference for each sequence that names it, and one for the radix cache if the
// cache keeps it. The last reference frees the page; there is no other way. The lowest free page is
// taken first. So a sequence's pages are adjacent in memory, which is faster to read, and untouched
// memory stays untouched as long as possible. Taking and freeing cost O(log n), all else O(1).
// Engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice {

inline constexpr std::int32_t kNoPage = -1;  // a hole: the group no longer keeps these tokens

// The pages of one group.
class PageAllocator {
 public:
  explicit PageAllocator(std::int64_t num_pages);

  std::int32_t take();            // a free page with one reference; kNoPage when none is free
  void share(std::int32_t page);  // one reference more
  void drop(std::int32_t page);   // one reference less
  // The radix cache marks the pages to which it holds a reference.
  void set_cached(std::int32_t page, bool cached);

  std::int32_t references(std::int32_t page) const { return pages_[page].references; }
  bool cached(std::int32_t page) const { return pages_[page].cached; }
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  // Pages that only the radix cache names: eviction can free them.
  std::int64_t num_evictable() const { return num_evictable_; }
  std::int64_t num_available() const { return num_free() + num_evictable_; }
  std::int64_t num_held() const { return num_pages() - num_available(); }

 private:
  struct Page {
    std::int32_t references = 0;
    bool cached = false;
  };
  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;  // a heap, the lowest page first
  std::int64_t num_evictable_ = 0;
};

// One reference to one page. Move-only.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageAllocator& pool, std::int32_t page)
      : pool_(&pool), page_(page) {}  // takes over a reference
  PageRef(PageRef&& other) noexcept
      : pool_(other.pool_), page_(std::exchange(other.page_, kNoPage)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = other.pool_;
      page_ = std::exchange(other.page_, kNoPage);
    }
    return *this;
  }
  ~PageRef() { reset(); }

  static PageRef taken(PageAllocator& pool) { return PageRef(pool, pool.take()); }
  static PageRef shared(PageAllocator& pool, std::int32_t page) {
    pool.share(page);
    return PageRef(pool, page);
  }

  explicit operator bool() const { return page_ != kNoPage; }
  std::int32_t page() const { return page_; }
  std::int32_t release() {
    return std::exchange(page_, kNoPage);
  }  // the caller takes over the reference
  void reset() {
    if (page_ != kNoPage) pool_->drop(std::exchange(page_, kNoPage));
  }

 private:
  PageAllocator* pool_ = nullptr;
  std::int32_t page_ = kNoPage;
};

// The pages of one sequence in one group, in order of position, holes included. Owns a reference to
// each. Move-only.
class PageList {
 public:
  explicit PageList(PageAllocator& pool) : pool_(&pool) {}
  PageList(PageList&& other) noexcept
      : pool_(other.pool_),
        pages_(std::move(other.pages_)),
        num_live_(std::exchange(other.num_live_, 0)) {
    other.pages_.clear();
  }
  PageList& operator=(PageList&&) = delete;
  ~PageList() { clear(); }

  PageAllocator& pool() const { return *pool_; }
  std::span<const std::int32_t> pages() const { return pages_; }
  std::int64_t size() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int32_t operator[](std::size_t i) const { return pages_[i]; }
  std::int64_t num_live() const { return num_live_; }  // number of pages, without the holes

  bool append_new();                      // false when no page is free
  void append_shared(std::int32_t page);  // kNoPage appends a hole
  PageRef remove(std::size_t i);          // leaves a hole at i; returns the page that was there
  PageRef replace(std::size_t i,
                  std::int32_t shared);  // names `shared` at i; returns the page that was there
  void clear();

 private:
  PageAllocator* pool_;
  std::vector<std::int32_t> pages_;
  std::int64_t num_live_ = 0;
};

}  // namespace sluice
