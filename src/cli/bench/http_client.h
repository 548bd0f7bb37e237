// A small HTTP/1.1 client for `bench serve`: plain TCP, a connection a request, answers handed on
// as they arrive. One thread drives any number of requests.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

struct HttpUrl {
  std::string host;
  std::string port = "80";
  std::string path;  // without a slash at the end
};
// "http://host:port/path"; Error{kBadInput} for anything else, https among it.
HttpUrl parse_url(std::string_view text);

struct HttpCall {
  std::string method = "GET";
  std::string target;  // "/v1/models"
  std::string body;    // sent as application/json where it is not empty
  std::vector<std::pair<std::string, std::string>> headers;
};

// What comes of a call, on the thread that runs the context.
struct HttpEvents {
  std::function<void(int status)> on_head;
  std::function<void(std::string_view bytes)> on_body;
  std::function<void(const std::string& error)> on_end;  // once; empty: the answer is whole
};

class HttpClient {
 public:
  // Looks the address up; Error{kBadInput} when there is none. `context` must outlive this.
  HttpClient(boost::asio::io_context& context, HttpUrl url);
  ~HttpClient();

  // Begins a call that may take `timeout`.
  void start(HttpCall call, std::chrono::duration<double> timeout, HttpEvents events);

  struct Answer {
    int status = 0;
    std::string body;
    std::string error;  // why there is no answer
  };
  // Makes a call and waits; runs the context, which must be idle.
  Answer fetch(HttpCall call, std::chrono::duration<double> timeout = std::chrono::seconds(60));

  const HttpUrl& url() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cuts server-sent events out of a stream. `take` gets the data of each.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view data)> take) : take_(std::move(take)) {}
  void push(std::string_view bytes);

 private:
  void line(std::string_view text);

  std::function<void(std::string_view)> take_;
  std::string held_;  // of a line whose end has not come
  std::string data_;  // of the event so far
};

}  // namespace sluice
