// HTTP as clients and proxies send it: forms of the target, `Host`, framing, methods, paths, and
// cross-origin requests.
#include <regex.h>

#include "server/core/cors.h"
#include "server/http/request_target.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kJson = "Content-Type: application/json\r\n";

struct Raw {
  const char* name;
  std::string bytes;
  int status;
  std::string part = {};  // of the body
};

std::string get(const std::string& target, const std::string& headers = "Host: t\r\n",
                const std::string& version = "1.1") {
  return "GET " + target + " HTTP/" + version + "\r\n" + headers + "\r\n";
}

std::string post(const std::string& headers, const std::string& body,
                 const std::string& version = "1.1") {
  return "POST /tokenize HTTP/" + version + "\r\nHost: t\r\n" + kJson + headers + "\r\n" + body;
}

std::string with_length(const std::string& body) {
  return post("Content-Length: " + std::to_string(body.size()) + "\r\n", body);
}

std::vector<Raw> requests() {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  return {
      // The target, RFC 9112, 3.2
      {"AbsoluteForm", get("http://host/v1/models"), 200, "tiny"},
      {"AbsoluteFormWithPort", get("http://host:30000/health"), 200},
      {"AbsoluteFormInCapitals", get("HTTP://HOST/health"), 200},
      {"AbsoluteFormOfHttps", get("https://host/health?x=1"), 200},
      {"AbsoluteFormOfIpv6", get("http://[::1]:80/health"), 200},
      {"AbsoluteFormWithoutPath", get("http://host"), 200, "<html"},
      {"AbsoluteFormWithQueryOnly", get("http://host?x"), 200, "<html"},
      {"AbsoluteFormWithoutHost", get("http:///health"), 400},
      {"AbsoluteFormWithUser", get("http://a@b/health"), 400},
      {"OtherScheme", get("ftp://host/health"), 400, "http://"},
      {"AuthorityForm", "CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\n", 400},
      {"AsteriskOfOptions", "OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n", 204},
      {"AsteriskOfGet", get("*"), 400},
      {"Query", get("/v1/models?api-version=2&x=%20"), 200},
      {"EmptyQuery", get("/health?"), 200},
      {"EscapedLetter", get("/he%61lth"), 200},
      {"EscapedSlashInAModelsName", get("/v1/models/org%2Fother"), 200, "org/other"},
      {"EscapeOnce", get("/v1/models/org%252Fother"), 404},
      {"BrokenEscape", get("/health%"), 400, "escape"},
      {"BrokenEscapeDigit", get("/health%4"), 400},
      {"BrokenEscapeLetter", get("/health%zz"), 400},
      {"EscapedNul", get("/health%00"), 400},
      {"EscapedControl", get("/health%0a%ff"), 404},
      {"EscapedQuestionMark", get("/health%3Fx"), 404},
      {"ParentFolder", get("/x/../health"), 404},
      {"EscapedParentFolder", get("/x/%2e%2e/health"), 404},
      // Slashes
      {"TrailingSlash", get("/v1/models/"), 200, "org/other"},
      {"TrailingSlashes", get("/v1/models//"), 200, "org/other"},
      {"DoubleSlash", get("//v1//models"), 200},
      {"TrailingSlashOfAModel", get("/v1/models/tiny/"), 200, "\"tiny\""},
      {"DoubleSlashInAModelsName", get("/v1/models/org//other"), 200, "org/other"},
      {"TrailingSlashAndQuery", get("/health/?a=b"), 200},
      {"OnlySlashes", get("///"), 200, "<html"},
      // Host, RFC 9112, 3.2
      {"NoHost", get("/health", ""), 400, "Host"},
      {"NoHostWithAbsoluteForm", get("http://host/health", ""), 400, "Host"},
      {"EmptyHost", get("/health", "Host:\r\n"), 200},
      {"TwoHosts", get("/health", "Host: a\r\nHost: b\r\n"), 400, "once"},
      {"TwoEqualHosts", get("/health", "Host: a\r\nhost: a\r\n"), 400, "once"},
      {"HostWithPath", get("/health", "Host: a/b\r\n"), 400},
      {"HostWithUser", get("/health", "Host: a@b\r\n"), 400},
      {"HostWithSpace", get("/health", "Host: a b\r\n"), 400},
      {"HostList", get("/health", "Host: a, b\r\n"), 400},
      {"HostOfIpv6", get("/health", "Host: [::1]:30000\r\n"), 200},
      {"OldWithoutHost", get("/health", "", "1.0"), 200},
      {"OldWithTwoHosts", get("/health", "Host: a\r\nHost: b\r\n", "1.0"), 400},
      {"OldProtocol", "GET /health\r\n\r\n", 400},
      {"NewProtocol", get("/health", "Host: a\r\n", "2.0"), 400},
      {"UnknownMinor", get("/health", "Host: a\r\n", "1.9"), 400},
      // Header lines
      {"FoldedHeader", get("/health", "Host: t\r\nX-A: 1\r\n 2\r\n"), 400, "second line"},
      {"FoldedWithTab", get("/health", "Host: t\r\nX-A: 1\r\n\t2\r\n"), 400},
      {"FoldedFirstLine", get("/health", " Host: t\r\n"), 400},
      {"SpaceBeforeColon", get("/health", "Host : t\r\n"), 400},
      {"NoColon", get("/health", "Host: t\r\nX-A\r\n"), 400},
      {"NulInValue", get("/health", std::string("Host: t\r\nX-A: a\0b\r\n", 19)), 400},
      {"BareReturn", get("/health", "Host: t\r\nX-A: a\rb\r\n"), 400},
      {"NoSpaceAfterColon", get("/health", "Host:t\r\nX-A:b\r\n"), 200},
      {"Latin1Value", get("/health", "Host: t\r\nX-A: caf\xE9\r\n"), 200},
      // Framing: what could make two programs see two different requests is refused
      {"TransferEncodingInOldProtocol", post(chunked, "2\r\n{}\r\n0\r\n\r\n", "1.0"), 400},
      {"TwoTransferEncodings", post(chunked + chunked, "2\r\n{}\r\n0\r\n\r\n"), 400},
      {"ChunkedTwice", post("Transfer-Encoding: chunked, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
       400},
      {"IdentityCoding", post("Transfer-Encoding: identity\r\n", "{}"), 400},
      {"AlmostChunked", post("Transfer-Encoding: xchunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 400},
      {"ChunkedBeforeLength", post(chunked + "Content-Length: 2\r\n", "{}"), 400},
      {"TwoEqualLengths", post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), 400},
      {"LengthList", post("Content-Length: 2, 2\r\n", "{}"), 400},
      {"LengthWithSign", post("Content-Length: +2\r\n", "{}"), 400},
      {"LengthInHex", post("Content-Length: 0x2\r\n", "{}"), 400},
      {"EmptyLength", post("Content-Length: \r\n", "{}"), 400},
      {"ChunkedInCapitals",
       post("Transfer-Encoding: Chunked\r\n", "E\r\n{\"prompt\":\"a\"}\r\n0\r\n\r\n"), 200},
      {"Trailers", post(chunked, "e\r\n{\"prompt\":\"a\"}\r\n0\r\nX-A: b\r\nX-C: d\r\n\r\n"), 200},
      {"ChunkExtension", post(chunked, "e;a=\"b\"\r\n{\"prompt\":\"a\"}\r\n0;x\r\n\r\n"), 200},
      {"ZerosBeforeChunkSize", post(chunked, "00e\r\n{\"prompt\":\"a\"}\r\n000\r\n\r\n"), 200},
      {"SpaceInChunkSize", post(chunked, "e \r\n{\"prompt\":\"a\"}\r\n0\r\n\r\n"), 400},
      // Content
      {"CharsetOfJson",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: Application/JSON ; "
       "charset=UTF-8\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}",
       200},
      {"ByteOrderMark", with_length("\xEF\xBB\xBF{\"prompt\":\"a\"}"), 200},
      {"OnlyAByteOrderMark", with_length("\xEF\xBB\xBF"), 400, "empty"},
      {"TwoByteOrderMarks", with_length("\xEF\xBB\xBF\xEF\xBB\xBF{}"), 400},
      {"Utf16", with_length(std::string("\xFF\xFE{\0}\0", 6)), 400, "UTF-8"},
      {"Gzip", post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"), 415, "`gzip`"},
      {"Identity",
       post("Content-Encoding: Identity\r\nContent-Length: 14\r\n", "{\"prompt\":\"a\"}"), 200},
      {"UnknownExpectation", post("Expect: tea\r\nContent-Length: 14\r\n", "{\"prompt\":\"a\"}"),
       417},
      {"OldExpectation",
       post("Expect: 100-continue\r\nContent-Length: 14\r\n", "{\"prompt\":\"a\"}", "1.0"), 200},
      {"Upgrade",
       get("/health",
           "Host: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
           "h2c\r\nHTTP2-Settings: AA\r\n"),
       200},
      {"BlankLinesFirst", "\r\n\r\n" + get("/health"), 200},
      // Methods
      {"UnknownMethod", "BREW /health HTTP/1.1\r\nHost: t\r\n\r\n", 405},
      {"LowerCaseMethod", "get /health HTTP/1.1\r\nHost: t\r\n\r\n", 405},
      {"Options", "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n", 204},
      {"OptionsOfNoRoute", "OPTIONS /nothing HTTP/1.1\r\nHost: t\r\n\r\n", 404},
  };
}

bool is_http_date(const std::string& text) {
  regex_t pattern;
  regcomp(&pattern,
          "^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|"
          "Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT$",
          REG_EXTENDED | REG_NOSUB);
  const bool matches = regexec(&pattern, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&pattern);
  return matches;
}

TEST(HttpProtocol, EachRequestHasItsAnswerAndADate) {
  TestServer server;
  for (const Raw& row : requests()) {
    SCOPED_TRACE(row.name);
    Client client(server.port());
    client.send(row.bytes);
    ClientReply reply = client.read_reply();
    EXPECT_EQ(reply.status, row.status) << reply.body;
    EXPECT_NE(reply.body.find(row.part), std::string::npos) << reply.body;
    EXPECT_TRUE(is_http_date(reply.headers["date"])) << reply.headers["date"];
    EXPECT_FALSE(reply.headers["x-request-id"].empty());
  }
  server.expect_healthy();
}

TEST(HttpProtocol, TheDateIsNow) {
  TestServer server;
  const std::time_t before = std::time(nullptr);
  const std::string date = server.call("GET", "/health").headers["date"];
  std::tm parts{};
  ASSERT_NE(strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts), nullptr);
  const std::time_t seen = timegm(&parts);
  EXPECT_GE(seen, before);
  EXPECT_LE(seen, std::time(nullptr));
  std::tm again{};
  gmtime_r(&seen, &again);
  EXPECT_EQ(again.tm_wday, parts.tm_wday);
}

TEST(HttpProtocol, TheDateIsOnStreamsAndWhereTheServerIsFull) {
  TestServerConfig config;
  config.limits.max_connections = 1;
  TestServer server(config);
  Client first(server.port());
  EXPECT_TRUE(is_http_date(
      first.call("POST", "/generate", R"({"text": "a", "stream": true})").headers["date"]));
  Client second(server.port());
  ClientReply full = second.read_reply();
  EXPECT_EQ(full.status, 503);
  EXPECT_TRUE(is_http_date(full.headers["date"]));
}

TEST(HttpProtocol, ConnectionsCloseOrStayAsTheClientAsks) {
  TestServer server;
  const auto closes = [&](const std::string& version, const std::string& connection) {
    Client client(server.port());
    client.send(get("/health", "Host: t\r\n" + connection, version));
    const ClientReply reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    if (reply.closed) {
      EXPECT_TRUE(client.closed_by_server());
      return true;
    }
    client.send(get("/health"));
    EXPECT_EQ(client.read_reply().status, 200);
    return false;
  };
  EXPECT_FALSE(closes("1.1", ""));
  EXPECT_TRUE(closes("1.1", "Connection: close\r\n"));
  EXPECT_TRUE(closes("1.1", "Connection: Close\r\n"));
  EXPECT_TRUE(closes("1.0", ""));
  EXPECT_FALSE(closes("1.0", "Connection: keep-alive\r\n"));
}

// An old client gets its stream without chunks, to the end of the connection.
TEST(HttpProtocol, StreamsForHttp10EndWithTheConnection) {
  TestServer server;
  const std::string body = R"({"text": "a", "stream": true})";
  Client client(server.port());
  client.send("POST /generate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  std::string seen;
  for (std::string bytes = client.read_some(); !bytes.empty(); bytes = client.read_some())
    seen += bytes;
  EXPECT_EQ(seen.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(seen.ends_with("data: [DONE]\n\n"));
}

TEST(HttpProtocol, HeadEqualsGetButForTheBody) {
  TestServer server;
  for (const char* path : {"/health", "/v1/models/", "/metrics", "/version"}) {
    Client client(server.port());
    ClientReply head = client.call("HEAD", path);
    ClientReply whole = client.call("GET", path);
    EXPECT_EQ(head.status, 200) << path;
    EXPECT_EQ(head.headers["content-type"], whole.headers["content-type"]);
    if (std::string(path) != "/metrics") {
      EXPECT_EQ(head.headers["content-length"], whole.headers["content-length"]);
    }
  }
}

TEST(HttpProtocol, ForgivenSlashesKeepTheAccessClass) {
  TestServerConfig config;
  config.options.api_keys = {"k"};
  TestServer server(config);
  for (const char* path : {"/v1/models/", "//v1/models", "/v1//models/", "/v1/mod%65ls"})
    EXPECT_EQ(server.call("GET", path).status, 401) << path;
  EXPECT_EQ(server.call("GET", "//flush_cache/", "", "Authorization: Bearer k\r\n").status, 403);
  EXPECT_EQ(
      server.call("POST", "/v1/chat/completions/", "{}", "Authorization: Bearer k\r\n").status,
      400);
}

TEST(HttpProtocol, OptionsSaysWhichMethodsARouteHas) {
  TestServer server;
  EXPECT_EQ(server.call("OPTIONS", "/v1/chat/completions").headers["allow"], "POST, OPTIONS");
  EXPECT_EQ(server.call("OPTIONS", "/v1/models").headers["allow"], "GET, HEAD, OPTIONS");
  EXPECT_EQ(server.call("OPTIONS", "/ping").headers["allow"], "GET, HEAD, POST, OPTIONS");
  ClientReply wrong = server.call("DELETE", "/v1/models");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers["allow"], "GET, HEAD, OPTIONS");
  EXPECT_FALSE(server.call("OPTIONS", "/v1/models").headers.count("content-length"));
}

std::string from(const std::string& origin) {
  return "Origin: " + origin + "\r\n";
}

const std::string kAsk =
    "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
    "authorization,content-type\r\n";

TEST(Cors, PagesOfThisMachineMayByDefault) {
  TestServer server;
  for (const char* origin : {"http://localhost", "http://localhost:3000", "https://LOCALHOST:8443",
                             "http://127.0.0.1", "http://127.0.0.1:5173", "http://[::1]:8080",
                             "http://app.localhost:80", "http://0.0.0.0:1", "tauri://localhost"}) {
    SCOPED_TRACE(origin);
    ClientReply ask = server.call("OPTIONS", "/v1/chat/completions", "", from(origin) + kAsk);
    EXPECT_EQ(ask.status, 204);
    EXPECT_EQ(ask.headers["access-control-allow-origin"], origin);
    EXPECT_NE(ask.headers["access-control-allow-methods"].find("POST"), std::string::npos);
    EXPECT_EQ(ask.headers["access-control-allow-headers"], "authorization,content-type");
    EXPECT_EQ(ask.headers["access-control-max-age"], "600");
    EXPECT_EQ(ask.headers["vary"], "Origin");
    EXPECT_FALSE(ask.headers.count("access-control-allow-credentials"));
    ClientReply reply = server.call("GET", "/v1/models", "", from(origin));
    EXPECT_EQ(reply.headers["access-control-allow-origin"], origin);
    EXPECT_NE(reply.headers["access-control-expose-headers"].find("X-Request-Id"),
              std::string::npos);
  }
}

TEST(Cors, OtherPagesMayNotByDefault) {
  TestServer server;
  for (const char* origin :
       {"https://example.com", "http://localhost.example.com", "http://notlocalhost", "null",
        "http://127.0.0.1.example.com", "http://[::2]", "http://[::1", "localhost", "://localhost",
        "http://example.com:80#localhost", "http://192.168.0.2", "http://127.0.0.1evil"}) {
    SCOPED_TRACE(origin);
    ClientReply ask = server.call("OPTIONS", "/v1/chat/completions", "", from(origin) + kAsk);
    EXPECT_EQ(ask.status, 403);
    EXPECT_NE(ask.error("message").find("--allowed-origins"), std::string::npos);
    EXPECT_FALSE(ask.headers.count("access-control-allow-origin"));
    // A browser hides this answer; a program that sends `Origin` gets it.
    ClientReply reply = server.call("GET", "/v1/models", "", from(origin));
    EXPECT_EQ(reply.status, 200);
    EXPECT_FALSE(reply.headers.count("access-control-allow-origin"));
    EXPECT_EQ(reply.headers["vary"], "Origin");
  }
}

TEST(Cors, ErrorsAndStreamsCarryTheHeaders) {
  TestServerConfig config;
  config.options.api_keys = {"k"};
  TestServer server(config);
  const std::string origin = from("http://localhost:3000");
  const std::string key = origin + "Authorization: Bearer k\r\n";
  const auto allowed = [](ClientReply reply, int status) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.headers["access-control-allow-origin"], "http://localhost:3000");
  };
  // A preflight has no key.
  allowed(server.call("OPTIONS", "/v1/chat/completions", "", origin + kAsk), 204);
  allowed(server.call("OPTIONS", "/nothing", "", origin + kAsk), 204);
  allowed(server.call("GET", "/v1/models", "", origin), 401);
  allowed(server.call("GET", "/nothing", "", key), 404);
  allowed(server.call("DELETE", "/v1/models", "", key), 405);
  allowed(server.call("POST", "/v1/chat/completions", "{", key), 400);
  allowed(server.chat(R"(, "stream": true)", key), 200);
  allowed(server.chat("", key), 200);
  allowed(server.call("GET", "/bad%", "", key), 400);
  Client large(server.port());
  large.send("POST /tokenize HTTP/1.1\r\nHost: t\r\n" + key + kJson +
             "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFF\r\n");
  allowed(large.read_reply(), 413);
}

TEST(Cors, FlagsChooseOriginsMethodsHeadersAndCredentials) {
  TestServerConfig config;
  set_option(config.options, "allowed-origins",
             R"(["https://a.example", "https://b.example:8443"])");
  set_option(config.options, "allowed-methods", "GET,POST");
  set_option(config.options, "allowed-headers", R"(["Authorization"])");
  set_option(config.options, "allow-credentials", "true");
  TestServer server(config);
  ClientReply ask = server.call("OPTIONS", "/v1/models", "", from("https://b.example:8443") + kAsk);
  EXPECT_EQ(ask.status, 204);
  EXPECT_EQ(ask.headers["access-control-allow-origin"], "https://b.example:8443");
  EXPECT_EQ(ask.headers["access-control-allow-methods"], "GET, POST");
  EXPECT_EQ(ask.headers["access-control-allow-headers"], "Authorization");
  EXPECT_EQ(ask.headers["access-control-allow-credentials"], "true");
  EXPECT_EQ(server.call("OPTIONS", "/v1/models", "", from("http://localhost") + kAsk).status, 403);
  EXPECT_EQ(server.call("OPTIONS", "/v1/models", "", from("https://b.example") + kAsk).status, 403);
}

TEST(Cors, AStarAllowsAllAndNoneAllowsNone) {
  TestServerConfig config;
  set_option(config.options, "allowed-origins", R"(["*"])");
  TestServer open(config);
  ClientReply reply = open.call("GET", "/health", "", from("https://any.example"));
  EXPECT_EQ(reply.headers["access-control-allow-origin"], "*");
  EXPECT_FALSE(reply.headers.count("vary"));
  // With credentials a browser does not take `*`.
  set_option(config.options, "allow-credentials", "true");
  TestServer named(config);
  reply = named.call("GET", "/health", "", from("https://any.example"));
  EXPECT_EQ(reply.headers["access-control-allow-origin"], "https://any.example");
  EXPECT_EQ(reply.headers["vary"], "Origin");
  for (const char* none : {"none", "[]", ""}) {
    set_option(config.options, "allowed-origins", none);
    TestServer closed(config);
    EXPECT_EQ(closed.call("OPTIONS", "/health", "", from("http://localhost") + kAsk).status, 403);
  }
}

TEST(Cors, WhatIsNoOriginIsRefusedAtTheStart) {
  for (const char* text :
       {"example.com", "https://example.com/", "https://example.com/app", "https://*.example.com",
        "https://", "[\"https://a.example\"", "[1]", "https://a.example,", "[\"\"]", "://x"}) {
    Options options;
    EXPECT_THROW(set_option(options, "allowed-origins", text), Error) << text;
  }
  Options options;
  EXPECT_THROW(set_option(options, "allowed-headers", "X: y"), Error);
  EXPECT_THROW(set_option(options, "allowed-methods", "[\"A\\r\\nB\"]"), Error);
  set_option(options, "allowed-origins", "https://a.example,localhost,null");
  EXPECT_EQ(options.allowed_origins.size(), 3u);
}

}  // namespace
}  // namespace sluice
