#include "telemetry/span_exporter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Listens on a port of this machine and answers each request with the next of its statuses, the
// last one for good. Status 0: no answer.
class Collector {
 public:
  explicit Collector(std::vector<int> statuses) : statuses_(std::move(statuses)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Collector() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (std::size_t number = 0;; ++number) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      const int status = statuses_[std::min(number, statuses_.size() - 1)];
      std::string text = read_request(peer);
      {  // before the answer: who has it may ask for the request
        const std::lock_guard lock(mutex_);
        requests_.push_back(std::move(text));
      }
      if (status == 0) {
        char byte = 0;
        EXPECT_GE(recv(peer, &byte, 1, 0), -1);  // until the client gives up
      } else {
        const std::string answer = fmt::format(
            "HTTP/1.1 {} Said\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}", status);
        EXPECT_EQ(send(peer, answer.data(), answer.size(), MSG_NOSIGNAL), ssize_t(answer.size()));
      }
      close(peer);
    }
  }
  static std::string read_request(int peer) {
    std::string text;
    char piece[4096];
    for (;;) {
      const std::size_t head = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      if (head != std::string::npos && length != std::string::npos &&
          text.size() >= head + 4 + std::stoul(text.substr(length + 16)))
        return text;
      const ssize_t got = recv(peer, piece, sizeof piece, 0);
      if (got <= 0) return text;
      text.append(piece, static_cast<std::size_t>(got));
    }
  }

  std::vector<int> statuses_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

ExportSettings quick(const std::string& url) {
  ExportSettings settings = read_export_settings(url);
  settings.batch_time = settings.first_pause = 20ms;
  return settings;
}

RequestSpan request() {
  RequestSpan out;
  out.context = new_trace();
  out.id = new_span_id();
  out.arrival = out.end = Clock::now();
  out.finish = "stop";
  return out;
}

template <class IsRight>
void wait_until(IsRight&& is_right) {
  const auto end = Clock::now() + 20s;
  while (!is_right() && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(is_right());
}

TEST(SpanExporter, SendsWhatItHasTogether) {
  Collector collector({200});
  ExportSettings settings = quick(collector.url());
  settings.batch_time = 60s;
  settings.max_batch = 3;
  SpanExporter exporter(std::move(settings));
  for (int i = 0; i < 3; ++i) exporter.add(request());
  wait_until([&] { return exporter.num_exported() == 3; });
  const std::string text = collector.requests().at(0);
  EXPECT_TRUE(text.starts_with("POST /v1/traces HTTP/1.1\r\n")) << text;
  EXPECT_NE(text.find("Content-Type: application/json\r\n"), std::string::npos);
  const Json body = Json::parse(text.substr(text.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 3u);
}

TEST(SpanExporter, TriesAgainWhereThatMayHelp) {
  Collector collector({503, 429, 200, 400, 200});
  SpanExporter exporter(quick(collector.url()));
  exporter.add(request());
  wait_until([&] { return exporter.num_exported() == 1; });
  exporter.add(request());
  wait_until([&] { return exporter.num_dropped() == 1; });
  exporter.add(request());
  wait_until([&] { return exporter.num_exported() == 2; });
  EXPECT_EQ(collector.requests().size(), 5u);
}

TEST(SpanExporter, WhatItsCallerDoesNotKeepIsNotSent) {
  Collector collector({200});
  SpanExporter exporter(quick(collector.url()));
  RequestSpan unsampled = request();
  unsampled.context.is_sampled = false;
  exporter.add(std::move(unsampled));
  exporter.add(request());
  wait_until([&] { return exporter.num_exported() == 1; });
}

TEST(SpanExporter, NeverWaitsForACollectorThatIsSilent) {
  Collector collector({0});
  const auto begin = Clock::now();
  {
    ExportSettings settings = quick(collector.url());
    settings.max_waiting = 10;
    SpanExporter exporter(std::move(settings));
    exporter.add(request());
    std::this_thread::sleep_for(200ms);  // it is being sent
    for (int i = 0; i < 100; ++i) exporter.add(request());
    EXPECT_LT(Clock::now() - begin, 2s);
    EXPECT_GE(exporter.num_dropped(), 80u);
    EXPECT_EQ(exporter.num_exported(), 0u);
  }
  EXPECT_LT(Clock::now() - begin, 9s);  // two last tries of two seconds
}

TEST(SpanExporter, GoesOnWithoutACollector) {
  ExportSettings settings = quick("http://127.0.0.1:1");
  settings.max_tries = 2;
  SpanExporter exporter(std::move(settings));
  exporter.add(request());
  wait_until([&] { return exporter.num_dropped() == 1; });
}

TEST(ExportSettings, EndpointsAreOfHttp) {
  EXPECT_EQ(read_export_settings("http://host:4318").url, "http://host:4318/v1/traces");
  EXPECT_EQ(read_export_settings("https://host/").url, "https://host/v1/traces");
  EXPECT_EQ(read_export_settings("https://host/a/b").url, "https://host/a/b");
  for (const char* bad : {"grpc://host:4317", "host:4317", "localhost", "", "ftp://host"})
    EXPECT_THROW(read_export_settings(bad), Error) << bad;
}

}  // namespace
}  // namespace sluice
