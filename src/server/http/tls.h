// TLS of the server, by OpenSSL: certificates and what they are used for.
//
//   TlsContext tls({.certfile = "cert.pem", .keyfile = "key.pem"});
//   auto transport = tls.accept(socket);   // a Transport that begins with a handshake
//
// TLS 1.2 and 1.3 with forward secrecy; no renegotiation, no compression, no early data. ALPN
// chooses http/1.1.
#pragma once

#include <memory>
#include <string>

#include "server/http/transport.h"

namespace sluice {

// Files in PEM. What each option says is in docs/tls.md.
struct TlsFiles {
  enum ClientCertificates { kNone = 0, kOptional = 1, kRequired = 2 };

  std::string certfile = {};  // the server's certificate, then those that signed it
  std::string keyfile = {};   // empty: the key stands in certfile
  std::string password = {};  // of an encrypted key
  std::string ca_certs = {};  // who signs clients' certificates
  ClientCertificates client_certificates = kNone;
};

class TlsContext {
 public:
  // Reads the files. Error{kBadInput} names the option whose file cannot be used, and why.
  explicit TlsContext(TlsFiles files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // For a socket that was accepted, and that does not block. Any thread.
  std::unique_ptr<Transport> accept(int socket) const;

  // Reads files again that have changed, and have been at rest since the call before: connections
  // that come later use them. Faulty files change nothing, and the log says why. One thread, about
  // once a second.
  void refresh();

  // The subject and the end of the certificate, for the log. Any thread.
  std::string summary() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
