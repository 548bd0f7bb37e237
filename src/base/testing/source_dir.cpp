#include "base/testing/source_dir.h"

namespace sluice {

std::string source_dir() {
  return SLUICE_SOURCE_DIR;
}

}  // namespace sluice
