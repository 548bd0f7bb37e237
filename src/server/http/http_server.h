// The listening side: accepts on one address and spreads connections over I/O threads, each with an
// event loop of its own. An idle connection owns no buffer.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/http/http.h"

namespace sluice {

class TlsContext;

// A host that begins so names a socket in the file system: `unix:/run/sluice/http.sock`.
inline constexpr std::string_view kUnixHost = "unix:";

class HttpServer {
 public:
  // Binds at once: throws Error{kBadInput} when the address cannot be had, and says who may hold
  // it. Port 0 takes any. With `tls` the address speaks HTTPS only. Callers of a socket in the file
  // system are on this machine; a socket that nobody listens on is replaced, and the file is
  // removed at the end.
  HttpServer(const std::string& host, int port, int io_threads, const ServerLimits& limits,
             HttpHandler& handler, std::shared_ptr<const TlsContext> tls = {});
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Beside the address, a socket in the file system that only this user may open: its callers are
  // Peer::kAdminSocket, and speak no TLS. Before start(). Error{kBadInput}: `path` cannot be had.
  void listen_for_admin(const std::string& path);
  void start();
  // Closes every connection and ends the threads. Any thread but an I/O thread.
  void stop();
  int port() const { return port_; }  // 0 for a socket in the file system
  int num_connections() const;
  // Requests that are read or answered: 0 when every answer has been handed to its socket whole.
  int num_exchanges() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace sluice
