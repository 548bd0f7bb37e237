// The back end that runs everywhere: every attention method, built from the ops of the device.
#pragma once

#include <memory>

#include "attention/registry.h"

namespace sluice {

// `name` must outlive the back end. `plain`: on a GPU the ops use their reference kernels, which
// have one order of summation.
std::unique_ptr<AttentionBackend> make_ops_backend(std::string_view name, bool plain,
                                                   const AttentionOptions& options,
                                                   const AttentionShape& shape, const KVPool& pool);

}  // namespace sluice
