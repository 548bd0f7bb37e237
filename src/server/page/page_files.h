// The files of the page, as embed.cmake puts them into the program.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct PageFile {
  std::string_view name;
  std::string_view content_type;
  std::string_view etag;  // weak: both forms below are the same file
  std::string_view bytes;
  std::string_view gzip;  // empty where the build had no gzip
};

std::span<const PageFile> page_files();

}  // namespace sluice
