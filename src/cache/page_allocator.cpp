#include "cache/page_allocator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace sluice {

PageAllocator::PageAllocator(std::int64_t num_pages) {
  check(num_pages >= 0 && num_pages <= INT32_MAX, "a page group of {} pages", num_pages);
  pages_.resize(static_cast<std::size_t>(num_pages));
  free_.resize(pages_.size());
  std::iota(free_.begin(), free_.end(), 0);  // ascending numbers are a heap
}

std::int32_t PageAllocator::take() {
  if (free_.empty()) return kNoPage;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int32_t page = free_.back();
  free_.pop_back();
  pages_[page].references = 1;
  return page;
}

void PageAllocator::share(std::int32_t page) {
  Page& p = pages_[page];
  check(p.references > 0, "page {} is shared, but nobody has it", page);
  if (p.cached && p.references == 1) --num_evictable_;
  ++p.references;
}

void PageAllocator::drop(std::int32_t page) {
  Page& p = pages_[page];
  check(p.references > 0, "page {} is released twice", page);
  check(!(p.cached && p.references == 1), "page {} is released while the radix cache lists it",
        page);
  if (--p.references == 0) {
    free_.push_back(page);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
  if (p.cached && p.references == 1) ++num_evictable_;
}

void PageAllocator::set_cached(std::int32_t page, bool cached) {
  Page& p = pages_[page];
  check(p.references > 0 && p.cached != cached, "page {}: cached is {} already, {} references",
        page, cached, p.references);
  p.cached = cached;
  if (p.references == 1) num_evictable_ += cached ? 1 : -1;
}

bool PageList::append_new() {
  const std::int32_t page = pool_->take();
  if (page == kNoPage) return false;
  pages_.push_back(page);
  ++num_live_;
  return true;
}

void PageList::append_shared(std::int32_t page) {
  if (page != kNoPage) {
    pool_->share(page);
    ++num_live_;
  }
  pages_.push_back(page);
}

PageRef PageList::remove(std::size_t i) {
  if (pages_[i] == kNoPage) return {};
  --num_live_;
  return PageRef(*pool_, std::exchange(pages_[i], kNoPage));
}

PageRef PageList::replace(std::size_t i, std::int32_t shared) {
  PageRef old = remove(i);
  pool_->share(shared);
  ++num_live_;
  pages_[i] = shared;
  return old;
}

void PageList::clear() {
  for (std::int32_t page : pages_)
    if (page != kNoPage) pool_->drop(page);
  pages_.clear();
  num_live_ = 0;
}

}  // namespace sluice
