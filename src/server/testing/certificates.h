// Certificates made for a test, and a client of TLS that is scripted as far as the tests need.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <string>

#include "base/testing/folder.h"

namespace sluice {

// Files in PEM of a folder.
struct CertificateFiles {
  std::string certificate, key;
};

struct CertificateWish {
  std::string name = "127.0.0.1";  // common name, and alternative name where it is an address
  std::string password = {};       // of the key; empty: the key is plain
  long days = 30;                  // from now on, or below 0: expired
  bool is_authority = false;
};

// An authority of its own key, whose certificates are written to a folder as NAME.pem and NAME.key.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  // PATH of the authority's own certificate.
  std::string write_authority(const TestFolder& folder, const std::string& file) const;
  CertificateFiles issue(const TestFolder& folder, const std::string& file,
                         const CertificateWish& wish = {}) const;

 private:
  std::string name_;
  EVP_PKEY* key_ = nullptr;
  X509* certificate_ = nullptr;
};

struct TlsReply {
  int status = 0;  // 0: no answer came
  std::string head, body;
};

// A blocking client. `setup` changes its context before it connects.
class TlsClient {
 public:
  using Setup = std::function<void(SSL_CTX*)>;
  explicit TlsClient(int port, const std::string& authority = {}, const Setup& setup = {});
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // The handshake is complete, as far as this side knows.
  bool is_connected() const { return connected_; }
  bool send(std::string_view bytes);
  // Some bytes; empty at the end, after a failure, or when nothing came in time.
  std::string read_some();
  TlsReply read_reply();
  TlsReply call(const std::string& method, const std::string& path, const std::string& body = "");
  // Closes without a farewell.
  void leave();
  SSL* ssl() const { return ssl_; }
  int fd() const { return fd_; }

 private:
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  int fd_ = -1;
  bool connected_ = false;
  std::string in_;
};

}  // namespace sluice
