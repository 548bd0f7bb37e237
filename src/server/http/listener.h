// A socket that accepts connections: of TCP, or in the file system. Private to HttpServer.
//
// The opening functions throw Error{kBadInput}, which says who may hold the address and which
// option to change. Everything behind start() runs on the thread of the context.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/http/http_connection.h"

namespace sluice {

class Listener {
 public:
  // Port 0 takes any.
  static std::unique_ptr<Listener> open_tcp(boost::asio::io_context& context,
                                            const std::string& host, int port);
  // A socket that nobody listens on is replaced, and the file goes with this object. `mode`: of the
  // file, from the moment that it exists, less what the umask takes. `what` names it in errors:
  // "the socket of --uds".
  static std::unique_ptr<Listener> open_unix(boost::asio::io_context& context,
                                             const std::string& path, unsigned mode,
                                             std::string_view what);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // `next` gives the thread of the next connection, `admit` takes the connection.
  using Next = std::function<std::shared_ptr<IoThread>()>;
  using Admit = std::function<void(StreamSocket, const std::shared_ptr<IoThread>&)>;
  void start(Next next, Admit admit);
  void close();
  int port() const;  // of TCP

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  explicit Listener(boost::asio::io_context& context) : acceptor_(context), retry_(context) {}
  void accept();
  void accept_later(const boost::system::error_code& ec);

  Acceptor acceptor_;
  boost::asio::steady_timer retry_;
  std::string path_;  // of a file that exists; empty: none
  Next next_;
  Admit admit_;
};

// Whether a peer is on this machine by its loopback address.
bool is_loopback(const StreamSocket& socket);

}  // namespace sluice
