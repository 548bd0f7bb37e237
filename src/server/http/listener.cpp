#include "server/http/listener.h"

#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace sluice {

namespace asio = boost::asio;
using asio::ip::tcp;
using Local = asio::local::stream_protocol;

std::unique_ptr<Listener> Listener::open_tcp(asio::io_context& context, const std::string& host,
                                             int port) {
  boost::system::error_code ec;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  require(!ec && !found.empty(),
          "cannot listen on host `{}`: {}. Give an address of this machine with --host.", host,
          ec.message());
  std::unique_ptr<Listener> out(new Listener(context));
  Acceptor& acceptor = out->acceptor_;
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(asio::socket_base::reuse_address(true), ec);
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
  return out;
}

std::unique_ptr<Listener> Listener::open_unix(asio::io_context& context, const std::string& path,
                                              unsigned mode, std::string_view what) {
  require(!path.empty(), "{} needs a path", what);
  // sockaddr_un holds no longer one, with its end.
  require(path.size() < sizeof(sockaddr_un::sun_path),
          "the path of {} has {} bytes; a socket's path has at most {}", what, path.size(),
          sizeof(sockaddr_un::sun_path) - 1);
  const Local::endpoint endpoint(path);
  struct stat status{};
  if (lstat(path.c_str(), &status) == 0) {
    require(S_ISSOCK(status.st_mode), "{} ({}) exists and is no socket; choose another path", path,
            what);
    boost::system::error_code refused;
    Local::socket probe(context);
    probe.connect(endpoint, refused);
    require(!!refused, "another program listens on {} ({}); choose another path", path, what);
    unlink(path.c_str());
  }
  boost::system::error_code ec;
  std::unique_ptr<Listener> out(new Listener(context));
  Acceptor& acceptor = out->acceptor_;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec && fchmod(acceptor.native_handle(), mode) != 0)
    ec.assign(errno, boost::system::system_category());
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) out->path_ = path;
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  require(!ec, "cannot listen on {} ({}): {}", path, what, ec.message());
  return out;
}

Listener::~Listener() {
  if (!path_.empty()) unlink(path_.c_str());
}

void Listener::start(Next next, Admit admit) {
  next_ = std::move(next);
  admit_ = std::move(admit);
  accept();
}

void Listener::close() {
  boost::system::error_code ec;
  acceptor_.close(ec);
  retry_.cancel();
}

void Listener::accept() {
  const std::shared_ptr<IoThread> io = next_();
  acceptor_.async_accept(io->context,
                         [this, io](const boost::system::error_code& ec, StreamSocket socket) {
                           if (!acceptor_.is_open()) return;
                           if (ec) return accept_later(ec);
                           admit_(std::move(socket), io);
                           accept();
                         });
}

// Out of descriptors or memory: the loop must live. Waits a little, then goes on.
void Listener::accept_later(const boost::system::error_code& ec) {
  log_warning("accept failed: {}; trying again", ec.message());
  retry_.expires_after(std::chrono::milliseconds(100));
  retry_.async_wait([this](const boost::system::error_code& stopped) {
    if (!stopped) accept();
  });
}

int Listener::port() const {
  boost::system::error_code ec;
  const auto endpoint = acceptor_.local_endpoint(ec);
  sockaddr_storage address{};
  std::memcpy(&address, endpoint.data(), std::min(sizeof address, endpoint.size()));
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

bool is_loopback(const StreamSocket& socket) {
  boost::system::error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return false;
  tcp::endpoint address;
  if (endpoint.size() > address.capacity()) return false;
  std::memcpy(address.data(), endpoint.data(), endpoint.size());
  address.resize(endpoint.size());
  const int family = address.data()->sa_family;
  return (family == AF_INET || family == AF_INET6) && address.address().is_loopback();
}

}  // namespace sluice
