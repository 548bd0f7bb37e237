// The back end that runs everywhere: every method of attention by the plain ops of the device. It is also what other
// back ends are checked by.
#pragma once

#include <memory>

#include "attention/registry.h"

namespace sluice {

std::unique_ptr<AttentionBackend> make_reference_backend(const AttentionOptions& options,
                                                         const AttentionShape& shape, const KVPool& pool);

}  // namespace sluice
