// The root of the checkout that the tests were built from: models and data of tests are beneath it.
#pragma once

#include <string>

namespace sluice {

std::string source_dir();

}  // namespace sluice
