#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

// Of one file in PEM; a store of all public authorities has a quarter of it.
constexpr std::uint64_t kMaxFileBytes = 1 << 20;
// The first byte of a record that holds a handshake (RFC 8446, 5.1).
constexpr unsigned char kHandshakeRecord = 22;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using ContextPtr = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using SessionPtr = std::unique_ptr<SSL, Deleter<SSL_free>>;
using BioPtr = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Deleter<X509_free>>;

// OpenSSL's words for the last error of this thread, which are taken away.
std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return text ? text : "unknown reason";
}

// A file's text, wiped at its end, since it may hold a key.
class PemText {
 public:
  PemText(const std::string& path, std::string_view option) {
    try {
      const File file = open_regular_file(path);
      require(file.size() <= kMaxFileBytes, "{} has {} bytes; at most {} are read", path,
              file.size(), kMaxFileBytes);
      text_.resize(file.size());
      require(file.read(0, std::as_writable_bytes(std::span(text_))),
              "{} changed while it was read", path);
    } catch (const Error& error) {
      fail(ErrorKind::kBadInput, "--{}: {}", option, error.message());
    }
  }
  ~PemText() { OPENSSL_cleanse(text_.data(), text_.size()); }
  PemText(const PemText&) = delete;
  PemText& operator=(const PemText&) = delete;

  bool holds(std::string_view part) const { return text_.find(part) != std::string::npos; }
  BioPtr bio() const {
    return BioPtr(BIO_new_mem_buf(text_.data(), static_cast<int>(text_.size())));
  }

 private:
  std::string text_;
};

// All certificates of a text, in its order. Other blocks are passed over.
std::vector<CertificatePtr> read_certificates(const PemText& text, const std::string& path,
                                              std::string_view option) {
  std::vector<CertificatePtr> out;
  const BioPtr bio = text.bio();
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    out.emplace_back(next);
  const bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = last_reason();
  require(!out.empty() || !is_end,
          "--{}: {} holds no certificate in PEM (`-----BEGIN CERTIFICATE-----`)", option, path);
  require(is_end, "--{}: certificate {} of {} cannot be read: {}", option, out.size() + 1, path,
          reason);
  return out;
}

struct Password {
  const std::string& text;
  bool was_asked = false;
};

// OpenSSL would ask at the terminal without this function.
int give_password(char* into, int size, int /*rwflag*/, void* argument) {
  Password& password = *static_cast<Password*>(argument);
  password.was_asked = true;
  const int count = static_cast<int>(password.text.size());
  if (count == 0 || count > size) return -1;
  std::copy(password.text.begin(), password.text.end(), into);
  return count;
}

KeyPtr read_private_key(const PemText& text, const std::string& path, std::string_view option,
                        const std::string& password_text) {
  Password password{password_text};
  const BioPtr bio = text.bio();
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, give_password, &password));
  const std::string reason = last_reason();
  require(key || !password.was_asked || !password_text.empty(),
          "--{}: the key of {} is encrypted; give --ssl-keyfile-password", option, path);
  require(key || !password.was_asked, "--ssl-keyfile-password does not open the key of {}", path);
  require(key || text.holds("PRIVATE KEY-----"),
          "--{}: {} holds no private key in PEM (`-----BEGIN PRIVATE KEY-----`)", option, path);
  require(!!key, "--{}: the private key of {} cannot be read: {}", option, path, reason);
  return key;
}

std::string date_of(const ASN1_TIME* time) {
  std::tm parts{};
  char text[32];
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unreadable date";
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts));
}

// Special characters are escaped.
std::string subject_of(const X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0,
                     XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
  char* text = nullptr;
  const long count = BIO_get_mem_data(bio.get(), &text);
  return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : "(no subject)";
}

void warn_of_dates(const X509* certificate, const std::string& path) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    log_warning("the certificate of {} has expired on {}: clients will refuse it", path,
                date_of(X509_get0_notAfter(certificate)));
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    log_warning("the certificate of {} is valid from {} on: clients will refuse it until then",
                path, date_of(X509_get0_notBefore(certificate)));
}

void warn_of_mode(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & 007) != 0)
    log_warning("{} holds a private key, and everybody may use it (mode {:o}): chmod 600 {}", path,
                status.st_mode & 0777, path);
}

// http/1.1 where a client offers it. One that offers other protocols alone is refused (RFC 7301).
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kOurs[] = "\x8http/1.1\x8http/1.0";
  unsigned char* chosen = nullptr;
  const int found =
      SSL_select_next_proto(&chosen, out_size, kOurs, sizeof kOurs - 1, offered, offered_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

struct Loaded {
  ContextPtr context;
  std::string summary;
};

void use_server_certificate(SSL_CTX* context, const TlsFiles& files, std::string& summary) {
  const PemText text(files.certfile, "ssl-certfile");
  const std::vector<CertificatePtr> chain = read_certificates(text, files.certfile, "ssl-certfile");
  require(SSL_CTX_use_certificate(context, chain[0].get()) == 1,
          "--ssl-certfile: the certificate of {} is refused: {}", files.certfile, last_reason());
  for (std::size_t i = 1; i < chain.size(); ++i)
    require(SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1,
            "--ssl-certfile: certificate {} of {} is refused: {}", i + 1, files.certfile,
            last_reason());

  const bool has_keyfile = !files.keyfile.empty();
  const std::string& key_path = has_keyfile ? files.keyfile : files.certfile;
  const std::string_view option =
      has_keyfile ? "ssl-keyfile" : "ssl-certfile without --ssl-keyfile";
  const PemText key_text(key_path, option);
  const KeyPtr key = read_private_key(key_text, key_path, option, files.password);
  require(X509_check_private_key(chain[0].get(), key.get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1,
          "the key of {} does not belong to the first certificate of {} (--ssl-keyfile, "
          "--ssl-certfile): {}",
          key_path, files.certfile, last_reason());
  warn_of_mode(key_path);
  warn_of_dates(chain[0].get(), files.certfile);
  summary = fmt::format("certificate of {}, valid until {}", subject_of(chain[0].get()),
                        date_of(X509_get0_notAfter(chain[0].get())));
}

void use_client_authorities(SSL_CTX* context, const TlsFiles& files) {
  if (files.client_certificates == TlsFiles::kNone) return;
  const PemText text(files.ca_certs, "ssl-ca-certs");
  for (const CertificatePtr& authority : read_certificates(text, files.ca_certs, "ssl-ca-certs"))
    require(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
                SSL_CTX_add_client_CA(context, authority.get()) == 1,
            "--ssl-ca-certs: a certificate of {} is refused: {}", files.ca_certs, last_reason());
  const int must =
      files.client_certificates == TlsFiles::kRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | must, nullptr);
}

Loaded load(const TlsFiles& files) {
  ERR_clear_error();
  Loaded out;
  out.context.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* const context = out.context.get();
  // Forward secrecy and authenticated encryption; the suites of TLS 1.3 have both.
  const bool is_set = context && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
                      SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
  require(is_set, "OpenSSL cannot be used: {}", last_reason());
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A write that must wait is tried again from a buffer that may have grown and moved. An idle
  // connection holds no buffers of records.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  // Sessions are resumed by tickets, whose keys end with this context.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  static constexpr unsigned char kSessionScope[] = "sluice";
  SSL_CTX_set_session_id_context(context, kSessionScope, sizeof kSessionScope - 1);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  use_server_certificate(context, files, out.summary);
  use_client_authorities(context, files);
  return out;
}

class TlsTransport : public Transport {
 public:
  TlsTransport(int socket, SessionPtr session) : socket_(socket), session_(std::move(session)) {
    SSL_set_fd(session_.get(), socket);
    SSL_set_accept_state(session_.get());
  }

  bool needs_handshake() const override { return true; }

  Status handshake() override {
    if (!has_begun_) {
      unsigned char first = 0;
      const ssize_t count = recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Status::kWantRead;
      if (count <= 0) return Status::kClosed;
      if (first != kHandshakeRecord && std::isalpha(first)) return Status::kPlain;
      has_begun_ = true;
    }
    ERR_clear_error();
    const int result = SSL_do_handshake(session_.get());
    if (result == 1) {
      is_open_ = true;
      return Status::kDone;
    }
    const Status status = status_of(result);
    if (status == Status::kClosed) note_failure();
    return status;
  }

  std::string failure() const override { return failure_; }

  // Without OpenSSL's read-ahead a call takes one whole record, and nothing that follows it.
  Moved read(std::span<char> into) override {
    Moved moved;
    has_more_ = false;
    while (into.size() - moved.num_bytes >= SSL3_RT_MAX_PLAIN_LENGTH) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(session_.get(), into.data() + moved.num_bytes,
                                     into.size() - moved.num_bytes, &count);
      if (result != 1) {
        const Status status = status_of(result);
        if (moved.num_bytes == 0)
          moved.status = status;
        else
          has_more_ = status != Status::kWantRead;  // an end is told by the next call
        break;
      }
      moved.num_bytes += count;
    }
    return moved;
  }

  bool has_more() const override { return has_more_; }

  Moved write(std::string_view bytes) override {
    std::size_t count = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &count);
    if (result == 1) return {Status::kDone, count};
    return {status_of(result)};
  }

  void end_writing() override {
    if (!is_open_) return;
    is_open_ = false;
    ERR_clear_error();
    SSL_shutdown(session_.get());
    ERR_clear_error();
  }

 private:
  Status status_of(int result) {
    switch (SSL_get_error(session_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Status::kWantRead;
      case SSL_ERROR_WANT_WRITE:
        return Status::kWantWrite;
      case SSL_ERROR_SSL:
      case SSL_ERROR_SYSCALL:
        is_open_ = false;  // OpenSSL forbids a shutdown after these
        return Status::kClosed;
      default:
        return Status::kClosed;
    }
  }

  void note_failure() {
    const long verified = SSL_get_verify_result(session_.get());
    const bool has_reason = ERR_peek_last_error() != 0;
    const std::string reason = last_reason();
    failure_ = verified != X509_V_OK ? fmt::format("the client's certificate: {}",
                                                   X509_verify_cert_error_string(verified))
               : has_reason          ? reason
                                     : "the client closed the connection";
  }

  const int socket_;
  const SessionPtr session_;
  bool has_begun_ = false;
  bool has_more_ = false;
  bool is_open_ = false;  // the handshake is complete, and nothing has gone wrong
  std::string failure_;
};

// What tells that a file is another one, or was written.
using FileState = std::array<std::int64_t, 5>;

FileState state_of(const std::string& path) {
  struct stat status{};
  if (path.empty() || stat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino),
          static_cast<std::int64_t>(status.st_size),
          status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
          status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec};
}

std::array<FileState, 3> states_of(const TlsFiles& files) {
  return {state_of(files.certfile), state_of(files.keyfile), state_of(files.ca_certs)};
}

TlsFiles consistent(TlsFiles files) {
  require(!files.certfile.empty(),
          "--ssl-keyfile, --ssl-ca-certs, --ssl-cert-reqs and --enable-ssl-refresh say nothing "
          "without a certificate; give --ssl-certfile");
  require(files.client_certificates == TlsFiles::kNone || !files.ca_certs.empty(),
          "--ssl-cert-reqs {} needs to know who signs the clients' certificates; give "
          "--ssl-ca-certs",
          static_cast<int>(files.client_certificates));
  require(files.client_certificates != TlsFiles::kNone || files.ca_certs.empty(),
          "--ssl-ca-certs is of no use without certificates of clients; give --ssl-cert-reqs 2 (1 "
          "lets clients without one in, too)");
  return files;
}

}  // namespace

struct TlsContext::Impl {
  explicit Impl(TlsFiles given) : files(std::move(given)), used(states_of(files)), seen(used) {
    loaded = load(files);
  }

  const TlsFiles files;
  std::array<FileState, 3> used;  // when the files were read last; refresh()
  std::array<FileState, 3> seen;  // at the last refresh()
  mutable std::mutex mutex;
  Loaded loaded;  // guarded by mutex
};

TlsContext::TlsContext(TlsFiles files)
    : impl_(std::make_unique<Impl>(consistent(std::move(files)))) {}

TlsContext::~TlsContext() = default;

std::unique_ptr<Transport> TlsContext::accept(int socket) const {
  SessionPtr session;
  {
    const std::lock_guard lock(impl_->mutex);
    session.reset(SSL_new(impl_->loaded.context.get()));
  }
  if (!session) throw std::bad_alloc();
  return std::make_unique<TlsTransport>(socket, std::move(session));
}

void TlsContext::refresh() {
  Impl& impl = *impl_;
  const std::array<FileState, 3> now = states_of(impl.files);
  // Certificate and key are two files, which are not replaced at one instant.
  const bool is_at_rest = now == impl.seen;
  impl.seen = now;
  if (now == impl.used || !is_at_rest) return;
  impl.used = now;
  try {
    Loaded loaded = load(impl.files);
    log_info("TLS files were read again: {}", loaded.summary);
    const std::lock_guard lock(impl.mutex);
    std::swap(impl.loaded, loaded);
  } catch (const Error& error) {
    log_error("{}; TLS goes on with what was read before", error.message());
  }
}

std::string TlsContext::summary() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->loaded.summary;
}

}  // namespace sluice
