// The lightest client of many streams: one thread, epoll, and no parser. It counts events by the
// blank lines between them, and knows the end of an answer by its last chunk.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct StreamPlan {
  int port = 0;
  int num_streams = 0;
  std::string path, body;
  bool counts_lines = false;  // an event is a line, as in NDJSON
};

struct StreamCounts {
  std::int64_t num_events = 0;  // of all streams
  std::int64_t num_bytes = 0;
  std::int64_t num_failed = 0;  // streams that did not end as they should
  double first_s = 0;           // steady clock, of the first event
  double last_s = 0;            // of the last byte
  double cpu_s = 0;             // between the two
};

// Opens all streams and reads them to their ends.
StreamCounts read_streams(const StreamPlan& plan);

// Seconds of the steady clock, and processor seconds of this process.
double steady_seconds();
double process_seconds();

}  // namespace sluice
