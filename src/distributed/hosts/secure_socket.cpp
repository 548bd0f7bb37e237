#include "distributed/hosts/secure_socket.h"

#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::string_view kIdentity = "sluice ranks 1";
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kFlushBytes = 64 << 10;

// OpenSSL's words for the last error of this thread, which are taken away.
std::string last_reason() {
  const unsigned long code = ERR_peek_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return text ? text : "the connection was closed";
}

// The key as the session of a connection that there never was; the caller owns it.
SSL_SESSION* session_of(SSL* ssl) {
  const auto& key = *static_cast<const NodeKey*>(SSL_get_app_data(ssl));
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  if (session && cipher &&
      SSL_SESSION_set1_master_key(session, key.bytes().data(), key.bytes().size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** id, std::size_t* id_size,
            SSL_SESSION** session) {
  *id = nullptr;
  *id_size = 0;
  *session = nullptr;
  if (digest && EVP_MD_get_type(digest) != NID_sha256) return 1;
  *session = session_of(ssl);
  if (!*session) return 0;
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *id_size = kIdentity.size();
  return 1;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  *session = nullptr;
  if (id_size != kIdentity.size() || std::memcmp(id, kIdentity.data(), id_size) != 0) return 1;
  *session = session_of(ssl);
  return *session ? 1 : 0;
}

int milliseconds_until(SecureSocket::Clock::time_point deadline) {
  if (deadline == SecureSocket::Clock::time_point::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - SecureSocket::Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

struct SecureSocket::Tls {
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  BIO* in = nullptr;   // from the network; of `ssl`, as the next one
  BIO* out = nullptr;  // to the network
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
};

NodeKey NodeKey::read(const std::string& path) {
  std::string secret;
  try {
    const File file = open_regular_file(path);
    require(file.size() <= kMaxSecretBytes, "{} has {} bytes; at most {} are a key", path,
            file.size(), kMaxSecretBytes);
    secret.resize(file.size());
    require(file.read(0, std::as_writable_bytes(std::span(secret))), "{} changed while it was read",
            path);
  } catch (const Error& error) {
    fail(ErrorKind::kBadInput, "--dist-key-file: {}", error.message());
  }
  while (!secret.empty() && std::string_view(" \t\r\n").find(secret.back()) != std::string::npos)
    secret.pop_back();
  require(secret.size() >= kMinSecretBytes,
          "--dist-key-file: {} holds {} bytes; at least {} are a key. Make one with: openssl rand "
          "-hex 32",
          path, secret.size(), kMinSecretBytes);
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IWGRP | S_IRWXO)) != 0)
    log_warning("{} holds a key, and other users may read or change it (chmod 600)", path);
  NodeKey key(secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

NodeKey::NodeKey(std::string_view secret) {
  unsigned size = 0;
  const unsigned char* const done = HMAC(
      EVP_sha256(), kIdentity.data(), static_cast<int>(kIdentity.size()),
      reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), bytes_.data(), &size);
  check(done != nullptr && size == bytes_.size(), "HMAC-SHA256 failed");
}

NodeKey::~NodeKey() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

SecureSocket::SecureSocket(int fd, const NodeKey& key, Side side, std::uint64_t rekey_bytes)
    : fd_(fd), rekey_bytes_(rekey_bytes), key_(key), peer_(peer_of(fd)), tls_(new Tls) {
  tls_->context = SSL_CTX_new(side == kServer ? TLS_server_method() : TLS_client_method());
  check(tls_->context != nullptr, "no TLS context");
  SSL_CTX* const context = tls_->context;
  const bool is_set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                      SSL_CTX_set_num_tickets(context, 0) == 1;
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (side == kServer)
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  else
    SSL_CTX_set_psk_use_session_callback(context, use_key);
  // A server that shows a certificate in place of the key is refused. This one has none to show.
  if (side == kClient) SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  tls_->ssl = SSL_new(context);
  tls_->in = BIO_new(BIO_s_mem());
  tls_->out = BIO_new(BIO_s_mem());
  check(is_set && tls_->ssl && tls_->in && tls_->out, "no TLS session");
  SSL_set_bio(tls_->ssl, tls_->in, tls_->out);
  SSL_set_app_data(tls_->ssl, const_cast<NodeKey*>(&key_));
  if (side == kServer)
    SSL_set_accept_state(tls_->ssl);
  else
    SSL_set_connect_state(tls_->ssl);
}

SecureSocket::~SecureSocket() {
  tls_.reset();
  close(fd_);
}

void SecureSocket::handshake(Clock::time_point deadline) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      ERR_clear_error();
      const int done = SSL_do_handshake(tls_->ssl);
      const int why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(tls_->ssl, done);
      const std::string reason = done == 1 ? "" : last_reason();
      collect_output();
      (void)flush_locked();  // an alert, too
      if (done == 1) {
        require(SSL_session_reused(tls_->ssl) == 1, "it did not use the key");
        return;
      }
      require(why == SSL_ERROR_WANT_READ,
              "it does not have the same key, or is no node of Sluice ({})", reason);
    }
    if (receive_some(deadline)) continue;
    if (Clock::now() >= deadline) fail(ErrorKind::kFatal, "it said nothing in time");
    fail(ErrorKind::kFatal, "it closed the connection");
  }
}

void SecureSocket::collect_output() {
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(tls_->out, &bytes);
  if (count <= 0) return;
  const auto* const from = reinterpret_cast<const std::byte*>(bytes);
  output_.insert(output_.end(), from, from + count);
  (void)BIO_reset(tls_->out);
}

bool SecureSocket::flush_locked() {
  while (output_sent_ < output_.size() && !has_lost_peer_) {
    const ssize_t done = ::send(fd_, output_.data() + output_sent_, output_.size() - output_sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (done < 0)
      has_lost_peer_ = true;
    else
      output_sent_ += static_cast<std::size_t>(done);
  }
  output_.clear();
  output_sent_ = 0;
  return false;
}

bool SecureSocket::flush() {
  std::lock_guard lock(mutex_);
  return flush_locked();
}

void SecureSocket::await_room(int milliseconds) const {
  pollfd entry{fd_, POLLOUT, 0};
  (void)poll(&entry, 1, milliseconds);
}

SecureSocket::Sent SecureSocket::send(std::span<const std::byte> head,
                                      std::span<const std::byte> payload) {
  std::lock_guard lock(mutex_);
  if (has_lost_peer_) return kClosed;
  if (since_rekey_ > rekey_bytes_) {
    since_rekey_ = 0;
    (void)SSL_key_update(tls_->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  // One record where both are short.
  std::vector<std::byte> joined;
  std::span<const std::byte> parts[2] = {head, payload};
  if (head.size() + payload.size() <= SSL3_RT_MAX_PLAIN_LENGTH) {
    joined.assign(head.begin(), head.end());
    joined.insert(joined.end(), payload.begin(), payload.end());
    parts[0] = joined;
    parts[1] = {};
  }
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      ERR_clear_error();
      std::size_t done = 0;
      // A record at a time: OpenSSL clears its memory after each, which would grow with the part.
      const std::size_t count = std::min<std::size_t>(part.size(), SSL3_RT_MAX_PLAIN_LENGTH);
      if (SSL_write_ex(tls_->ssl, part.data(), count, &done) != 1) {
        has_lost_peer_ = true;
        return kClosed;
      }
      since_rekey_ += done;
      part = part.subspan(done);
      collect_output();
      // The other side deciphers the start of a large part meanwhile.
      if (output_.size() - output_sent_ >= kFlushBytes) (void)flush_locked();
    }
  }
  const bool is_part = flush_locked();
  return has_lost_peer_ ? kClosed : is_part ? kPart : kAll;
}

int SecureSocket::take_plain(std::span<std::byte> out) {
  ERR_clear_error();
  std::size_t count = 0;
  const int done = SSL_read_ex(tls_->ssl, out.data(), out.size(), &count);
  if (done == 1) return static_cast<int>(count);
  if (SSL_get_error(tls_->ssl, done) == SSL_ERROR_WANT_READ) return 0;
  is_broken_ = true;
  return -1;
}

bool SecureSocket::receive_some(Clock::time_point deadline) {
  received_.resize(kReadBytes);
  for (;;) {
    if (deadline != Clock::time_point::max()) {
      pollfd entry{fd_, POLLIN, 0};
      if (poll(&entry, 1, milliseconds_until(deadline)) == 0) return false;
    }
    const ssize_t count = recv(fd_, received_.data(), received_.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    num_receipts_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    return BIO_write(tls_->in, received_.data(), static_cast<int>(count)) == count;
  }
}

bool SecureSocket::read_until(std::span<std::byte> out, Clock::time_point deadline) {
  while (!out.empty()) {
    int count = 0;
    {
      std::lock_guard lock(mutex_);
      if (is_broken_) return false;
      count = take_plain(out.first(std::min(out.size(), kReadBytes)));
    }
    if (count < 0) return false;
    out = out.subspan(static_cast<std::size_t>(count));
    if (count == 0 && !receive_some(deadline)) return false;
  }
  return true;
}

void SecureSocket::shut_down() {
  shutdown(fd_, SHUT_RDWR);
}

}  // namespace sluice
