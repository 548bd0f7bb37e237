// Sends what traces tell of requests to a collector of OpenTelemetry: OTLP over HTTP, as JSON.
//
//   SpanExporter exporter(read_export_settings("http://127.0.0.1:4318"));
//   exporter.add(std::move(request));
//
// add() never waits: a thread of its own collects requests for up to a second and sends them
// together. What the collector does not take in time is dropped and counted; the log tells when
// that begins and ends. The destructor tries once more, for at most two seconds. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hub/transfer.h"
#include "telemetry/request_span.h"

namespace sluice {

struct ExportSettings {
  std::string url;
  std::string service = "sluice";    // OTEL_SERVICE_NAME
  std::vector<std::string> headers;  // "Name: value", of OTEL_EXPORTER_OTLP_HEADERS
  std::size_t max_waiting = 4096;    // requests
  std::size_t max_batch = 512;
  std::chrono::milliseconds batch_time{1000};
  std::chrono::milliseconds first_pause{1000};  // before a batch is sent again; doubles
  int max_tries = 4;
};

// `endpoint` is http://HOST:PORT or https://..., with a path or with /v1/traces to be added.
// Error{kBadInput}: another scheme (gRPC), or no URL.
ExportSettings read_export_settings(const std::string& endpoint);

class SpanExporter {
 public:
  // Error{kBadInput}: libcurl is missing.
  explicit SpanExporter(ExportSettings settings);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  void add(RequestSpan&& request);
  // Requests, so far.
  std::uint64_t num_exported() const { return exported_.load(); }
  std::uint64_t num_dropped() const { return dropped_.load(); }

 private:
  enum class Outcome { kTaken, kRefused, kLater };
  void work();
  void send(const std::vector<RequestSpan>& batch);
  Outcome try_to_send(const std::string& body, std::chrono::seconds timeout);
  void note(const std::string& trouble);

  const ExportSettings settings_;
  std::atomic<bool> stop_transfer_{false};
  TransferSession session_;  // the thread's
  std::string trouble_;      // the thread's; that the log knows of
  std::atomic<std::uint64_t> exported_{0}, dropped_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<RequestSpan> waiting_;  // guarded by mutex_
  bool is_ending_ = false;            // guarded by mutex_
  std::thread thread_;                // last: uses all of the above
};

}  // namespace sluice
