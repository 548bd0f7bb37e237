#include "server/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

#include "base/log.h"
#include "server/http/http_connection.h"
#include "server/http/listener.h"
#include "server/http/tls.h"

namespace sluice {

namespace asio = boost::asio;

namespace {

// As a bind() without a mode gives it; the umask takes its part.
constexpr unsigned kSocketMode = 0777;
constexpr unsigned kAdminSocketMode = 0600;

}  // namespace

struct HttpServer::Impl {
  Impl(const ServerLimits& limits, HttpHandler& handler, int num_threads,
       std::shared_ptr<const TlsContext> tls_context)
      : shared(std::make_shared<ServerShared>(limits, handler)), tls(std::move(tls_context)) {
    for (int i = 0; i < num_threads; ++i) threads_io.push_back(std::make_shared<IoThread>());
  }

  void listen(Listener& listener, const std::function<Peer(const StreamSocket&)>& peer_of,
              bool has_tls) {
    listener.start(
        [this] { return threads_io[next++ % threads_io.size()]; },
        [this, peer_of, has_tls](StreamSocket socket, const std::shared_ptr<IoThread>& io) {
          const Peer peer = peer_of(socket);
          admit(std::move(socket), peer, has_tls, io);
        });
  }

  void admit(StreamSocket socket, Peer peer, bool has_tls, const std::shared_ptr<IoThread>& io) {
    if (shared->num_connections.fetch_add(1, std::memory_order_relaxed) >=
        shared->limits.max_connections) {
      shared->num_connections.fetch_sub(1, std::memory_order_relaxed);
      if (has_tls) return;  // an answer would need a handshake
      const std::string full = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nDate: {}\r\nRetry-After: 2\r\n"
          "Content-Length: 0\r\nConnection: close\r\n\r\n",
          http_date());
      boost::system::error_code ec;
      socket.non_blocking(true, ec);
      socket.write_some(asio::buffer(full), ec);
      return;
    }
    auto holder = std::make_shared<StreamSocket>(std::move(socket));
    asio::post(io->context, [this, io, peer, has_tls, holder] {
      std::unique_ptr<Transport> transport = has_tls
                                                 ? tls->accept(holder->native_handle())
                                                 : make_plain_transport(holder->native_handle());
      std::make_shared<Connection>(std::move(*holder), std::move(transport), peer, io, shared)
          ->start();
    });
  }

  std::shared_ptr<ServerShared> shared;
  const std::shared_ptr<const TlsContext> tls;  // null: plain HTTP
  std::vector<std::shared_ptr<IoThread>> threads_io;
  std::unique_ptr<Listener> listener;  // on thread 0
  bool is_local = false;               // the listener is in the file system
  std::unique_ptr<Listener> admin;     // on thread 0; null without such a socket
  std::size_t next = 0;                // on thread 0
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::vector<std::thread> threads;
  bool running = false;
};

HttpServer::HttpServer(const std::string& host, int port, int io_threads,
                       const ServerLimits& limits, HttpHandler& handler,
                       std::shared_ptr<const TlsContext> tls)
    : impl_(std::make_unique<Impl>(limits, handler, std::max(1, io_threads), std::move(tls))) {
  asio::io_context& context = impl_->threads_io[0]->context;
  impl_->is_local = host.starts_with(kUnixHost);
  impl_->listener = impl_->is_local ? Listener::open_unix(context, host.substr(kUnixHost.size()),
                                                          kSocketMode, "the socket of --uds")
                                    : Listener::open_tcp(context, host, port);
  port_ = impl_->is_local ? 0 : impl_->listener->port();
}

void HttpServer::listen_for_admin(const std::string& path) {
  impl_->admin = Listener::open_unix(impl_->threads_io[0]->context, path, kAdminSocketMode,
                                     "the socket of --admin-socket");
}

HttpServer::~HttpServer() {
  stop();
}

void HttpServer::start() {
  impl_->running = true;
  for (const auto& io : impl_->threads_io)
    impl_->guards.push_back(asio::make_work_guard(io->context));
  asio::post(impl_->threads_io[0]->context, [impl = impl_.get()] {
    impl->listen(
        *impl->listener,
        [impl](const StreamSocket& socket) {
          return impl->is_local || is_loopback(socket) ? Peer::kThisMachine : Peer::kRemote;
        },
        impl->tls != nullptr);
    if (impl->admin)
      impl->listen(*impl->admin, [](const StreamSocket&) { return Peer::kAdminSocket; }, false);
  });
  for (const auto& io : impl_->threads_io) impl_->threads.emplace_back([io] { io->context.run(); });
}

void HttpServer::stop() {
  if (!impl_->running) return;
  impl_->running = false;
  asio::post(impl_->threads_io[0]->context, [impl = impl_.get()] {
    impl->listener->close();
    if (impl->admin) impl->admin->close();
  });
  // Twice: a connection accepted just before the acceptor closed begins after the first round.
  for (int round = 0; round < 2; ++round) {
    for (const auto& io : impl_->threads_io) {
      auto closed = std::make_shared<std::promise<void>>();
      std::future<void> all_closed = closed->get_future();
      asio::post(io->context, [closed, io] {
        std::vector<std::shared_ptr<Connection>> open;
        for (Connection* connection : io->connections)
          open.push_back(connection->shared_from_this());
        for (const auto& connection : open) connection->close();
        closed->set_value();
      });
      all_closed.wait();
    }
  }
  for (const auto& io : impl_->threads_io) io->close();
  impl_->guards.clear();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

int HttpServer::num_exchanges() const {
  return impl_->shared->num_exchanges.load(std::memory_order_relaxed);
}

int HttpServer::num_connections() const {
  return impl_->shared->num_connections.load(std::memory_order_relaxed);
}

}  // namespace sluice
