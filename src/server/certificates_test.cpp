#include "server/testing/certificates.h"

#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* make_certificate(EVP_PKEY* key, const CertificateWish& wish, X509* issuer,
                       EVP_PKEY* issuer_key) {
  static long serial = 1;
  X509* const out = X509_new();
  X509_set_version(out, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(out), serial++);
  X509_gmtime_adj(X509_getm_notBefore(out), std::min(0L, wish.days) * 86400 - 86400);
  X509_gmtime_adj(X509_getm_notAfter(out), wish.days * 86400);
  X509_set_pubkey(out, key);
  X509_NAME* const name = X509_get_subject_name(out);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(wish.name.c_str()), -1, -1, 0);
  X509* const signer = issuer ? issuer : out;
  X509_set_issuer_name(out, X509_get_subject_name(signer));
  add_extension(out, signer, NID_basic_constraints,
                wish.is_authority ? "critical,CA:TRUE" : "CA:FALSE");
  if (wish.name == "127.0.0.1") add_extension(out, signer, NID_subject_alt_name, "IP:127.0.0.1");
  X509_sign(out, issuer_key, EVP_sha256());
  return out;
}

std::FILE* open_file(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (!file) throw std::runtime_error("cannot write " + path);
  return file;
}

}  // namespace

TestAuthority::TestAuthority(const std::string& name) : name_(name), key_(EVP_EC_gen("P-256")) {
  certificate_ = make_certificate(key_, {.name = name, .is_authority = true}, nullptr, key_);
}

TestAuthority::~TestAuthority() {
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

std::string TestAuthority::write_authority(const TestFolder& folder,
                                           const std::string& file) const {
  const std::string path = folder.path() + "/" + file;
  std::FILE* const out = open_file(path);
  PEM_write_X509(out, certificate_);
  std::fclose(out);
  return path;
}

CertificateFiles TestAuthority::issue(const TestFolder& folder, const std::string& file,
                                      const CertificateWish& wish) const {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = make_certificate(key, wish, certificate_, key_);
  CertificateFiles paths{folder.path() + "/" + file + ".pem", folder.path() + "/" + file + ".key"};
  std::FILE* out = open_file(paths.certificate);
  PEM_write_X509(out, certificate);
  std::fclose(out);
  out = open_file(paths.key);
  PEM_write_PKCS8PrivateKey(out, key, wish.password.empty() ? nullptr : EVP_aes_256_cbc(),
                            wish.password.empty() ? nullptr : wish.password.c_str(),
                            static_cast<int>(wish.password.size()), nullptr, nullptr);
  std::fclose(out);
  chmod(paths.key.c_str(), 0600);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return paths;
}

TlsClient::TlsClient(int port, const std::string& authority, const Setup& setup) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes with write()
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
  const timeval timeout{kClientTimeoutMs / 1000, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  context_ = SSL_CTX_new(TLS_client_method());
  if (!authority.empty()) {
    SSL_CTX_load_verify_locations(context_, authority.c_str(), nullptr);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  }
  if (setup) setup(context_);
  ssl_ = SSL_new(context_);
  SSL_set_fd(ssl_, fd_);
  connected_ = SSL_connect(ssl_) == 1;
}

TlsClient::~TlsClient() {
  if (connected_ && fd_ >= 0) SSL_shutdown(ssl_);
  SSL_free(ssl_);
  SSL_CTX_free(context_);
  leave();
}

void TlsClient::leave() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool TlsClient::send(std::string_view bytes) {
  return connected_ && SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) ==
                           static_cast<int>(bytes.size());
}

std::string TlsClient::read_some() {
  char buffer[16384];
  const int count = connected_ ? SSL_read(ssl_, buffer, sizeof buffer) : 0;
  return count > 0 ? std::string(buffer, static_cast<std::size_t>(count)) : std::string();
}

TlsReply TlsClient::read_reply() {
  TlsReply reply;
  const auto more = [&] {
    const std::string bytes = read_some();
    in_ += bytes;
    return !bytes.empty();
  };
  std::size_t end;
  while ((end = in_.find("\r\n\r\n")) == std::string::npos)
    if (!more()) return reply;
  reply.head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  constexpr std::string_view kLength = "Content-Length: ", kLastChunk = "0\r\n\r\n";
  if (const std::size_t at = reply.head.find(kLength); at != std::string::npos) {
    const std::size_t length = std::stoul(reply.head.substr(at + kLength.size()));
    while (in_.size() < length)
      if (!more()) return {};
    reply.body = in_.substr(0, length);
    in_.erase(0, length);
  } else {
    while (!in_.ends_with(kLastChunk))
      if (!more()) return {};
    reply.body = std::exchange(in_, {});
  }
  reply.status = std::atoi(reply.head.c_str() + 9);
  return reply;
}

TlsReply TlsClient::call(const std::string& method, const std::string& path,
                         const std::string& body) {
  if (!send(request_text(method, path, body))) return {};
  return read_reply();
}

}  // namespace sluice
