#include "server/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http/http_connection.h"

namespace sluice {

namespace asio = boost::asio;
using asio::ip::tcp;

struct HttpServer::Impl {
  Impl(const ServerLimits& limits, HttpHandler& handler, int num_threads)
      : shared(std::make_shared<ServerShared>(limits, handler)) {
    for (int i = 0; i < num_threads; ++i) threads_io.push_back(std::make_shared<IoThread>());
    acceptor.emplace(threads_io[0]->context);
    retry.emplace(threads_io[0]->context);
  }

  void accept() {
    const std::shared_ptr<IoThread> io = threads_io[next++ % threads_io.size()];
    acceptor->async_accept(io->context,
                           [this, io](const boost::system::error_code& ec, tcp::socket socket) {
                             if (!acceptor->is_open()) return;
                             if (ec) {
                               // Out of descriptors or memory: the loop must live. Wait a little,
                               // then go on.
                               log_warning("accept failed: {}; trying again", ec.message());
                               retry->expires_after(std::chrono::milliseconds(100));
                               retry->async_wait([this](const boost::system::error_code& stopped) {
                                 if (!stopped) accept();
                               });
                               return;
                             }
                             admit(std::move(socket), io);
                             accept();
                           });
  }

  void admit(tcp::socket socket, const std::shared_ptr<IoThread>& io) {
    if (shared->num_connections.fetch_add(1, std::memory_order_relaxed) >=
        shared->limits.max_connections) {
      shared->num_connections.fetch_sub(1, std::memory_order_relaxed);
      const std::string full = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nDate: {}\r\nRetry-After: 2\r\n"
          "Content-Length: 0\r\nConnection: close\r\n\r\n",
          http_date());
      boost::system::error_code ec;
      socket.non_blocking(true, ec);
      socket.write_some(asio::buffer(full), ec);
      return;
    }
    auto holder = std::make_shared<tcp::socket>(std::move(socket));
    asio::post(io->context, [this, io, holder] {
      std::make_shared<Connection>(std::move(*holder), io, shared)->start();
    });
  }

  std::shared_ptr<ServerShared> shared;
  std::vector<std::shared_ptr<IoThread>> threads_io;
  std::optional<tcp::acceptor> acceptor;    // on thread 0
  std::optional<asio::steady_timer> retry;  // on thread 0
  std::size_t next = 0;                     // on thread 0
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::vector<std::thread> threads;
  bool running = false;
};

HttpServer::HttpServer(const std::string& host, int port, int io_threads,
                       const ServerLimits& limits, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(limits, handler, std::max(1, io_threads))) {
  boost::system::error_code ec;
  tcp::resolver resolver(impl_->threads_io[0]->context);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  require(!ec && !found.empty(),
          "cannot listen on host `{}`: {}. Give an address of this machine with --host.", host,
          ec.message());
  tcp::acceptor& acceptor = *impl_->acceptor;
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  const std::string advice =
      ec == asio::error::address_in_use
          ? fmt::format(
                "Another program holds the port (`ss -ltnp 'sport = :{}'` names it); stop it or "
                "choose another with --port.",
                port)
      : ec == asio::error::access_denied
          ? std::string(
                "Ports below 1024 need rights that this process lacks; choose another with --port.")
          : std::string("--host must be an address of this machine, 127.0.0.1 or 0.0.0.0.");
  require(!ec, "cannot listen on {}:{}: {}. {}", host, port, ec.message(), advice);
  port_ = acceptor.local_endpoint().port();
}

HttpServer::~HttpServer() {
  stop();
}

void HttpServer::start() {
  impl_->running = true;
  for (const auto& io : impl_->threads_io)
    impl_->guards.push_back(asio::make_work_guard(io->context));
  asio::post(impl_->threads_io[0]->context, [this] { impl_->accept(); });
  for (const auto& io : impl_->threads_io) impl_->threads.emplace_back([io] { io->context.run(); });
}

void HttpServer::stop() {
  if (!impl_->running) return;
  impl_->running = false;
  asio::post(impl_->threads_io[0]->context, [this] {
    boost::system::error_code ec;
    impl_->acceptor->close(ec);
    impl_->retry->cancel();
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
