// The metrics that follow the engine's counters, and those of the process: read when /metrics is
// asked for. Any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/core/metrics.h"

namespace sluice {

using MetricLabels = std::map<std::string, std::string>;

void add_sglang_metrics(const MetricLabels& labels, const EngineStats& stats,
                        std::vector<prometheus::MetricFamily>& out);
void add_vllm_metrics(const MetricLabels& labels, const EngineStats& stats,
                      std::vector<prometheus::MetricFamily>& out);
// `sluice:*`
void add_own_metrics(const MetricLabels& labels, const EngineStats& stats,
                     std::vector<prometheus::MetricFamily>& out);
void add_figure(const ServerFigure& figure, std::vector<prometheus::MetricFamily>& out);
// `process_*`
void add_process_metrics(std::vector<prometheus::MetricFamily>& out);

}  // namespace sluice
