// HTTPS as clients meet it: what is agreed on, who is let in, and what becomes of clients that are
// slow, broken, or speak something else.
#include "server/http/tls.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <fstream>

#include "server/testing/certificates.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A server of HTTPS beside the plain one of `plain`, whose routes it shares.
class HttpsServer {
 public:
  explicit HttpsServer(TlsFiles wish = {}, ServerLimits limits = test_limits())
      : authority("Authority"), authority_file(authority.write_authority(folder, "authority.pem")) {
    files = authority.issue(folder, "server");
    if (wish.certfile.empty()) wish.certfile = files.certificate;
    if (wish.keyfile.empty()) wish.keyfile = files.key;
    if (wish.client_certificates != TlsFiles::kNone) wish.ca_certs = authority_file;
    tls = std::make_shared<TlsContext>(wish);
    http = std::make_unique<HttpServer>("127.0.0.1", 0, 2, limits, *plain.router, tls);
    http->start();
  }
  ~HttpsServer() {
    plain.engine->stalled = false;
    http->stop();
  }
  int port() const { return http->port(); }

  TestServer plain;
  TestFolder folder;
  TestAuthority authority;
  std::string authority_file;
  CertificateFiles files;
  std::shared_ptr<TlsContext> tls;
  std::unique_ptr<HttpServer> http;
};

std::string chat_body(const std::string& fields = "") {
  return R"({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}])" + fields + "}";
}

TlsClient::Setup with_certificate(const CertificateFiles& files) {
  return [files](SSL_CTX* context) {
    SSL_CTX_use_certificate_file(context, files.certificate.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM);
  };
}

TlsClient::Setup with_versions(int low, int high) {
  return [low, high](SSL_CTX* context) {
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, low);
    SSL_CTX_set_max_proto_version(context, high);
  };
}

TlsClient::Setup with_protocols(const std::string& list) {
  return [list](SSL_CTX* context) {
    SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned>(list.size()));
  };
}

TEST(Tls, AnswersAndStreamsAndKeepsTheConnection) {
  HttpsServer server;
  TlsClient client(server.port(), server.authority_file, with_protocols("\x02h2\x08http/1.1"));
  ASSERT_TRUE(client.is_connected());
  EXPECT_STREQ(SSL_get_version(client.ssl()), "TLSv1.3");
  const unsigned char* protocol = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(client.ssl(), &protocol, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(protocol), size), "http/1.1");
  EXPECT_EQ(client.call("GET", "/health").status, 200);
  const TlsReply whole = client.call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(Json::parse(whole.body)["choices"][0]["message"]["content"],
            server.plain.text_of_script());
  const TlsReply stream =
      client.call("POST", "/v1/chat/completions", chat_body(R"(, "stream": true)"));
  EXPECT_THAT(stream.body, HasSubstr("data: [DONE]"));
  EXPECT_EQ(client.call("GET", "/metrics").status, 200);
  server.plain.expect_healthy();
}

TEST(Tls, OldVersionsOtherProtocolsAndWeakSuitesAreRefused) {
  HttpsServer server;
  const auto connects = [&](const TlsClient::Setup& setup) {
    TlsClient client(server.port(), server.authority_file, setup);
    return client.call("GET", "/health").status == 200;
  };
  EXPECT_TRUE(connects(with_versions(TLS1_2_VERSION, TLS1_2_VERSION)));
  EXPECT_TRUE(connects(with_versions(TLS1_3_VERSION, TLS1_3_VERSION)));
  EXPECT_FALSE(connects(with_versions(TLS1_VERSION, TLS1_1_VERSION)));
  EXPECT_TRUE(connects(with_protocols("\x08http/1.1")));
  EXPECT_FALSE(connects(with_protocols("\x02h2")));
  EXPECT_FALSE(connects([](SSL_CTX* context) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-SHA:AES128-GCM-SHA256");
  }));
  server.plain.expect_healthy();
}

TEST(Tls, PlainHttpIsToldToUseHttps) {
  HttpsServer server;
  Client client(server.port());
  const ClientReply reply = client.call("GET", "/health");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error("code"), "https_required");
  EXPECT_THAT(reply.error("message"), HasSubstr("https://"));
  EXPECT_TRUE(client.closed_by_server());
  server.plain.expect_healthy();
}

TEST(Tls, SlowAndBrokenHandshakesEnd) {
  HttpsServer server;
  // The first bytes of a hello, which has 512; garbage; a record of the largest size.
  const std::string half_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const std::string& bytes :
       {std::string(), half_hello, std::string("\x16\x03\x01\x00\x05\x00\x00\x00\x00\x00", 10),
        std::string("\x16\xff\xff\xff\xff") + std::string(70000, 'x'), std::string(100, '\0'),
        std::string("\x80\x2e\x01\x00\x02", 5)}) {
    Client client(server.port());
    if (!bytes.empty()) client.send(bytes);
    EXPECT_TRUE(client.closed_by_server()) << bytes.size();
  }
  // A byte at a time does not lengthen the time.
  Client slow(server.port());
  const auto start = std::chrono::steady_clock::now();
  for (const char byte : half_hello + std::string(500, '\0')) {
    if (!slow.send(std::string_view(&byte, 1))) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
  server.plain.expect_healthy();
}

TEST(Tls, CertificatesOfClients) {
  const TestAuthority stranger("Stranger");
  for (const auto mode : {TlsFiles::kOptional, TlsFiles::kRequired}) {
    HttpsServer server({.client_certificates = mode});
    const CertificateFiles known = server.authority.issue(server.folder, "client", {"client"});
    const CertificateFiles expired =
        server.authority.issue(server.folder, "expired", {.name = "client", .days = -1});
    const CertificateFiles foreign = stranger.issue(server.folder, "foreign", {"client"});
    const auto status = [&](const TlsClient::Setup& setup) {
      TlsClient client(server.port(), server.authority_file, setup);
      return client.call("GET", "/health").status;
    };
    EXPECT_EQ(status(with_certificate(known)), 200);
    EXPECT_EQ(status({}), mode == TlsFiles::kOptional ? 200 : 0);
    EXPECT_EQ(status(with_certificate(foreign)), 0);
    EXPECT_EQ(status(with_certificate(expired)), 0);
    server.plain.expect_healthy();
  }
}

TEST(Tls, LargeBodiesInAnyPieces) {
  HttpsServer server;
  server.plain.engine->context = 1 << 20;
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "word ";
  const std::string body = R"({"model": "tiny", "prompt": ")" + text + R"("})";
  TlsClient whole(server.port(), server.authority_file);
  const TlsReply expected = whole.call("POST", "/tokenize", body);
  ASSERT_EQ(expected.status, 200);
  EXPECT_GT(expected.body.size(), 100'000u);
  TlsClient pieces(server.port(), server.authority_file);
  const std::string request = request_text("POST", "/tokenize", body);
  for (std::size_t at = 0, size = 1; at < request.size(); at += size, size = size % 7000 * 2 + 1)
    ASSERT_TRUE(pieces.send(std::string_view(request).substr(at, size)));
  EXPECT_EQ(pieces.read_reply().body, expected.body);
  // Two requests in one write.
  ASSERT_TRUE(pieces.send(request_text("GET", "/health", "") + request_text("GET", "/ready", "")));
  EXPECT_THAT(pieces.read_reply().body, HasSubstr("ok"));
  EXPECT_THAT(pieces.read_reply().body, HasSubstr("ready"));
}

TEST(Tls, ClientsThatLeaveEndTheirRequests) {
  HttpsServer server;
  const std::string endless =
      chat_body(R"(, "stream": true, "ignore_eos": true, "max_tokens": 4000)");
  for (const bool says_goodbye : {true, false}) {
    const std::uint64_t aborted = server.plain.engine->num_aborted();
    TlsClient client(server.port(), server.authority_file);
    ASSERT_TRUE(client.send(request_text("POST", "/v1/chat/completions", endless)));
    ASSERT_FALSE(client.read_some().empty());
    if (says_goodbye)
      SSL_shutdown(client.ssl());
    else
      client.leave();
    EXPECT_TRUE(eventually([&] { return server.plain.engine->num_aborted() > aborted; }));
  }
  // One that reads nothing more, and an engine that is not done before the server notices.
  const std::uint64_t aborted = server.plain.engine->num_aborted();
  server.plain.engine->step_us = 1;
  server.plain.engine->context = 1 << 20;
  TlsClient client(server.port(), server.authority_file);
  const int small = 4096;
  setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  ASSERT_TRUE(client.send(
      request_text("POST", "/generate",
                   R"({"text": "x", "stream": true, "return_logprob": true, "top_logprobs_num": 20,
          "sampling_params": {"ignore_eos": true, "max_new_tokens": 1000000}})")));
  EXPECT_TRUE(eventually([&] { return server.plain.engine->num_aborted() > aborted; }, 20000));
  server.plain.expect_healthy();
}

TEST(Tls, RenegotiationIsRefusedAndNewKeysAreTaken) {
  HttpsServer server;
  {
    TlsClient client(server.port(), server.authority_file,
                     with_versions(TLS1_2_VERSION, TLS1_2_VERSION));
    ASSERT_EQ(client.call("GET", "/health").status, 200);
    SSL_renegotiate(client.ssl());
    EXPECT_NE(SSL_do_handshake(client.ssl()), 1);
  }
  TlsClient client(server.port(), server.authority_file);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    EXPECT_EQ(client.call("GET", "/health").status, 200);
  }
  server.plain.expect_healthy();
}

TEST(Tls, ConnectionsBeyondTheLimitAreClosed) {
  ServerLimits limits = test_limits();
  limits.max_connections = 1;
  HttpsServer server({}, limits);
  {
    TlsClient first(server.port(), server.authority_file);
    ASSERT_EQ(first.call("GET", "/health").status, 200);
    EXPECT_FALSE(TlsClient(server.port(), server.authority_file).is_connected());
    EXPECT_EQ(first.call("GET", "/health").status, 200);
  }
  EXPECT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
  TlsClient next(server.port(), server.authority_file);
  EXPECT_EQ(next.call("GET", "/health").status, 200);
}

// What a file of TLS is refused for.
TEST(Tls, FaultyFilesAreNamed) {
  const TestFolder folder;
  const TestAuthority authority("Authority");
  const std::string root = authority.write_authority(folder, "root.pem");
  const CertificateFiles good = authority.issue(folder, "good");
  const CertificateFiles other = authority.issue(folder, "other");
  const CertificateFiles locked =
      authority.issue(folder, "locked", {.password = "a long password"});
  folder.write("text.pem", "no PEM at all\n");
  std::ifstream in(good.certificate);
  std::string cut((std::istreambuf_iterator<char>(in)), {});
  folder.write("cut.pem", cut.substr(0, 200) + "\n-----END CERTIFICATE-----\n");
  const std::string text = folder.path() + "/text.pem", none = folder.path() + "/none.pem";

  const struct {
    TlsFiles files;
    const char* part;
  } table[] = {
      {{.certfile = good.certificate, .keyfile = good.key}, "accepted"},
      {{.certfile = none, .keyfile = good.key}, "--ssl-certfile"},
      {{.certfile = text, .keyfile = good.key}, "holds no certificate"},
      {{.certfile = folder.path() + "/cut.pem", .keyfile = good.key}, "cannot be read"},
      {{.certfile = folder.path(), .keyfile = good.key}, "--ssl-certfile"},
      {{.certfile = good.certificate, .keyfile = none}, "--ssl-keyfile"},
      {{.certfile = good.certificate, .keyfile = text}, "holds no private key"},
      {{.certfile = good.certificate}, "without --ssl-keyfile"},
      {{.certfile = good.certificate, .keyfile = other.key}, "does not belong"},
      {{.certfile = locked.certificate, .keyfile = locked.key}, "is encrypted"},
      {{.certfile = locked.certificate, .keyfile = locked.key, .password = "wrong"},
       "does not open"},
      {{.certfile = locked.certificate, .keyfile = locked.key, .password = "a long password"},
       "accepted"},
      {{.keyfile = good.key}, "give --ssl-certfile"},
      {{.certfile = good.certificate,
        .keyfile = good.key,
        .client_certificates = TlsFiles::kRequired},
       "give --ssl-ca-certs"},
      {{.certfile = good.certificate, .keyfile = good.key, .ca_certs = root}, "--ssl-cert-reqs"},
      {{.certfile = good.certificate,
        .keyfile = good.key,
        .ca_certs = text,
        .client_certificates = TlsFiles::kRequired},
       "--ssl-ca-certs"},
      {{.certfile = good.certificate,
        .keyfile = good.key,
        .ca_certs = root,
        .client_certificates = TlsFiles::kOptional},
       "accepted"},
  };
  for (const auto& row : table) {
    std::string message = "accepted";
    try {
      TlsContext context(row.files);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      message = error.message();
    }
    EXPECT_THAT(message, HasSubstr(row.part));
  }
}

TEST(Tls, ChangedFilesAreReadAgainAndFaultyOnesLeaveThoseOfBefore) {
  HttpsServer server;
  const auto serial = [&] {
    TlsClient client(server.port(), server.authority_file);
    EXPECT_EQ(client.call("GET", "/health").status, 200);
    X509* const certificate = SSL_get1_peer_certificate(client.ssl());
    const long out = ASN1_INTEGER_get(X509_get_serialNumber(certificate));
    X509_free(certificate);
    return out;
  };
  const auto refresh_twice = [&] {
    server.tls->refresh();
    server.tls->refresh();
  };
  TlsClient old(server.port(), server.authority_file);
  const long first = serial();
  refresh_twice();
  EXPECT_EQ(serial(), first);

  const CertificateFiles next = server.authority.issue(server.folder, "next");
  std::filesystem::rename(next.certificate, server.files.certificate);
  server.tls->refresh();  // only the certificate: the pair is not at rest
  std::filesystem::rename(next.key, server.files.key);
  server.tls->refresh();
  EXPECT_EQ(serial(), first);
  server.tls->refresh();
  const long second = serial();
  EXPECT_NE(second, first);

  server.folder.write("server.pem", "not a certificate");
  refresh_twice();
  EXPECT_EQ(serial(), second);
  std::filesystem::remove(server.files.key);
  refresh_twice();
  EXPECT_EQ(serial(), second);

  const CertificateFiles last = server.authority.issue(server.folder, "last");
  std::filesystem::rename(last.certificate, server.files.certificate);
  std::filesystem::rename(last.key, server.files.key);
  refresh_twice();
  EXPECT_NE(serial(), second);
  EXPECT_EQ(old.call("GET", "/health").status, 200);
}

TEST(UnixSocket, IsListenedOnAndReplacedAndRemoved) {
  TestServer server;
  const TestFolder folder;
  const std::string path = folder.path() + "/http.sock";
  {
    HttpServer http(std::string(kUnixHost) + path, 0, 1, test_limits(), *server.router);
    http.start();
    EXPECT_EQ(http.port(), 0);
    EXPECT_TRUE(std::filesystem::is_socket(path));
    EXPECT_THROW(HttpServer(std::string(kUnixHost) + path, 0, 1, test_limits(), *server.router),
                 Error);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  folder.write("http.sock", "a file");
  EXPECT_THROW(HttpServer(std::string(kUnixHost) + path, 0, 1, test_limits(), *server.router),
               Error);
}

}  // namespace
}  // namespace sluice
