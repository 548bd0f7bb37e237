#include "server/http/http_server.h"

#include <sys/stat.h>
#include <unistd.h>
#include <boost/asio/executor_work_guard.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http/http_connection.h"

namespace sluice {

namespace asio = boost::asio;
using asio::ip::tcp;
using Local = asio::local::stream_protocol;

struct HttpServer::Impl {
  Impl(const ServerLimits& limits, HttpHandler& handler, int num_threads)
      : shared(std::make_shared<ServerShared>(limits, handler)) {
    for (int i = 0; i < num_threads; ++i) threads_io.push_back(std::make_shared<IoThread>());
    acceptor.emplace(threads_io[0]->context);
    retry.emplace(threads_io[0]->context);
  }

  void accept() {
    const std::shared_ptr<IoThread> io = threads_io[next++ % threads_io.size()];
    acceptor->async_accept(
        io->context, [this, io](const boost::system::error_code& ec, tcp::socket socket) {
          if (!acceptor->is_open()) return;
          if (ec) return accept_later(ec, *retry, [this] { accept(); });
          boost::system::error_code unknown;
          const bool is_near = socket.remote_endpoint(unknown).address().is_loopback();
          admit(std::move(socket), is_near ? Peer::kThisMachine : Peer::kRemote, io);
          accept();
        });
  }

  void accept_admin() {
    const std::shared_ptr<IoThread> io = threads_io[next++ % threads_io.size()];
    admin->async_accept(io->context,
                        [this, io](const boost::system::error_code& ec, Local::socket socket) {
                          if (!admin->is_open()) return;
                          if (ec) return accept_later(ec, *admin_retry, [this] { accept_admin(); });
                          admit(std::move(socket), Peer::kAdminSocket, io);
                          accept_admin();
                        });
  }

  // Out of descriptors or memory: the loop must live. Waits a little, then goes on.
  void accept_later(const boost::system::error_code& ec, asio::steady_timer& timer,
                    std::function<void()> again) {
    log_warning("accept failed: {}; trying again", ec.message());
    timer.expires_after(std::chrono::milliseconds(100));
    timer.async_wait([again = std::move(again)](const boost::system::error_code& stopped) {
      if (!stopped) again();
    });
  }

  void admit(StreamSocket socket, Peer peer, const std::shared_ptr<IoThread>& io) {
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
    auto holder = std::make_shared<StreamSocket>(std::move(socket));
    asio::post(io->context, [this, io, peer, holder] {
      std::make_shared<Connection>(std::move(*holder), peer, io, shared)->start();
    });
  }

  std::shared_ptr<ServerShared> shared;
  std::vector<std::shared_ptr<IoThread>> threads_io;
  std::optional<tcp::acceptor> acceptor;          // on thread 0
  std::optional<asio::steady_timer> retry;        // on thread 0
  std::optional<Local::acceptor> admin;           // on thread 0; nothing without such a socket
  std::optional<asio::steady_timer> admin_retry;  // on thread 0
  std::string admin_path;
  std::size_t next = 0;  // on thread 0
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

void HttpServer::listen_for_admin(const std::string& path) {
  // sockaddr_un holds no longer one, with its end.
  require(path.size() < sizeof(sockaddr_un::sun_path),
          "the path of --admin-socket has {} bytes; a socket's path has at most {}", path.size(),
          sizeof(sockaddr_un::sun_path) - 1);
  const Local::endpoint endpoint(path);
  struct stat status{};
  if (lstat(path.c_str(), &status) == 0) {
    require(S_ISSOCK(status.st_mode),
            "{} of --admin-socket exists and is no socket; choose another path", path);
    boost::system::error_code refused;
    Local::socket probe(impl_->threads_io[0]->context);
    probe.connect(endpoint, refused);
    require(!!refused, "another program listens on {} of --admin-socket; choose another path",
            path);
    unlink(path.c_str());
  }
  boost::system::error_code ec;
  Local::acceptor& acceptor = impl_->admin.emplace(impl_->threads_io[0]->context);
  impl_->admin_retry.emplace(impl_->threads_io[0]->context);
  acceptor.open(endpoint.protocol(), ec);
  // The file has this mode from the moment that it exists.
  if (!ec && fchmod(acceptor.native_handle(), 0600) != 0)
    ec.assign(errno, boost::system::system_category());
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) impl_->admin_path = path;
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  require(!ec, "cannot listen on {} of --admin-socket: {}", path, ec.message());
}

HttpServer::~HttpServer() {
  stop();
  if (!impl_->admin_path.empty()) unlink(impl_->admin_path.c_str());
}

void HttpServer::start() {
  impl_->running = true;
  for (const auto& io : impl_->threads_io)
    impl_->guards.push_back(asio::make_work_guard(io->context));
  asio::post(impl_->threads_io[0]->context, [this] {
    impl_->accept();
    if (impl_->admin) impl_->accept_admin();
  });
  for (const auto& io : impl_->threads_io) impl_->threads.emplace_back([io] { io->context.run(); });
}

void HttpServer::stop() {
  if (!impl_->running) return;
  impl_->running = false;
  asio::post(impl_->threads_io[0]->context, [this] {
    boost::system::error_code ec;
    impl_->acceptor->close(ec);
    impl_->retry->cancel();
    if (!impl_->admin) return;
    impl_->admin->close(ec);
    impl_->admin_retry->cancel();
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
