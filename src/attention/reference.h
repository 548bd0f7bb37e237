// The back end that runs everywhere: every method of attention by the ops of the device.
#pragma once

#include <memory>

#include "attention/registry.h"

namespace sluice {

// `name` must outlive it. `plain`: on a GPU the ops keep to their plain kernels, which have one
// order of summation.
std::unique_ptr<AttentionBackend> make_ops_backend(std::string_view name, bool plain,
                                                   const AttentionOptions& options,
                                                   const AttentionShape& shape, const KVPool& pool);

}  // namespace sluice
