// `sluice plan MODEL --gpus 8xH200`: which mix of parallelism to take, by the cost model.
#pragma once

#include "cli/arguments.h"

namespace sluice {

// Exit code: 0, or that of a start without enough memory where no mix fits.
int run_plan_gpus(const Arguments& arguments);

}  // namespace sluice
