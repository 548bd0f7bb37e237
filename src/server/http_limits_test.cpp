// The protocol and its limits over real sockets: docs/rules.md, Limits.
#include <sys/resource.h>

#include <fstream>

#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

struct RawCase {
  const char* name;
  std::string bytes;
  int status;
};

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(text);
  return out;
}

std::string chunked(const std::string& body) {
  return "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: "
         "application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
         body;
}

std::vector<RawCase> refused() {
  const std::string json = "Content-Type: application/json\r\n";
  return {
      {"LongRequestLine", "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: t\r\n\r\n", 414},
      {"LongHeaderLine",
       "GET /health HTTP/1.1\r\nHost: t\r\nX: " + std::string(9000, 'a') + "\r\n\r\n", 431},
      {"HeaderLineWithoutEnd", "GET /health HTTP/1.1\r\nHost: t\r\nX: " + std::string(9000, 'a'),
       431},
      {"HeadersTooLarge",
       "GET /health HTTP/1.1\r\nHost: t\r\n" +
           repeated("X: " + std::string(4000, 'a') + "\r\n", 9) + "\r\n",
       431},
      {"TooManyHeaders", "GET /health HTTP/1.1\r\nHost: t\r\n" + repeated("X: y\r\n", 101) + "\r\n",
       431},
      {"TenThousandHeaders",
       "GET /health HTTP/1.1\r\nHost: t\r\n" + repeated("X: y\r\n", 10000) + "\r\n", 431},
      {"NegativeChunk", chunked("-2\r\nab\r\n0\r\n\r\n"), 400},
      {"PrefixedChunk", chunked("0x10\r\n0123456789abcdef\r\n0\r\n\r\n"), 400},
      {"OverflowingChunk", chunked("FFFFFFFFFFFFFFFFF\r\n"), 400},
      {"HugeChunk", chunked("FFFFFFFFFFFFFFF\r\n"), 413},
      {"ChunkWithoutEnd", chunked("2\r\nabcd\r\n0\r\n\r\n"), 400},
      {"LongChunkExtension", chunked("2;" + std::string(20000, 'x')), 400},
      {"HugeContentLength",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json + "Content-Length: 10000000000\r\n\r\n",
       413},
      {"NegativeContentLength",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json + "Content-Length: -1\r\n\r\n", 400},
      {"OverflowingContentLength",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json +
           "Content-Length: 99999999999999999999\r\n\r\n",
       400},
      {"TwoContentLengths",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json +
           "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
       400},
      {"LengthAndChunked",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json +
           "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
       400},
      {"UnknownTransferCoding",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json +
           "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
       400},
      {"NoLength", "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json + "\r\n", 411},
      {"Gzip",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\n" + json +
           "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
       415},
      {"WrongType",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: "
       "2\r\n\r\n{}",
       415},
      {"NoType", "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}", 415},
      {"WrongMethod", "DELETE /tokenize HTTP/1.1\r\nHost: t\r\n\r\n", 405},
      {"NoRoute", "GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n", 404},
      {"TrickyPath", "GET /../health HTTP/1.1\r\nHost: t\r\n\r\n", 404},
      {"NotHttp", "\x16\x03\x01\x02 hello\r\n\r\n", 400},
      {"BareLineFeeds", "GET /health HTTP/1.1\nHost: x\n\n", 400},
      {"HttpTwo", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"SpaceInHeaderName", "GET /health HTTP/1.1\r\nHost: t\r\nBad Name: x\r\n\r\n", 400},
  };
}

TEST(HttpLimits, EachBadRequestHasItsStatusAndLeavesTheServerAsItWas) {
  TestServer server;
  for (const RawCase& row : refused()) {
    SCOPED_TRACE(row.name);
    Client client(server.port());
    client.send(row.bytes);
    const ClientReply reply = client.read_reply();
    EXPECT_EQ(reply.status, row.status) << reply.body;
    EXPECT_FALSE(reply.headers.at("x-request-id").empty());
    EXPECT_NE(reply.error("code"), "(no error object)");
  }
  server.expect_healthy();
  EXPECT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
}

long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4;
}

TEST(HttpLimits, EndlessHeaderLineIsRefusedAfterEightKiB) {
  TestServer server;
  server.expect_healthy();
  const auto send_endless_line = [&] {
    Client client(server.port(), 2000);
    ASSERT_TRUE(client.send("GET /health HTTP/1.1\r\nHost: t\r\nX: "));
    const std::string block(64 << 10, 'a');
    for (std::size_t sent = 0; sent < (64u << 20) && client.send(block); sent += block.size()) {
    }
  };
  send_endless_line();  // what is allocated once, for all requests, does not count
  const long before = resident_kib();
  send_endless_line();
  EXPECT_LT(resident_kib() - before, 1024);
  server.expect_healthy();
}

TEST(HttpLimits, SlowHeadersAndSlowBodiesGet408) {
  TestServer server;
  Client head(server.port()), idle_body(server.port()), slow_body(server.port());
  const std::string start =
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
      "100\r\n\r\n{";
  head.send("GET /hea");
  idle_body.send(start);
  slow_body.send(start);
  std::thread trickle([&] {
    // A byte well inside the idle limit each time: only the total limit ends this one.
    for (int i = 0; i < 12; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      slow_body.send(" ");
    }
  });
  EXPECT_EQ(head.read_reply().status, 408);
  EXPECT_EQ(idle_body.read_reply().status, 408);
  EXPECT_EQ(slow_body.read_reply().status, 408);
  trickle.join();
  server.expect_healthy();
}

TEST(HttpLimits, IdleConnectionsAreClosedInSilence) {
  TestServerConfig config;
  config.limits.keep_alive_timeout = std::chrono::milliseconds(150);
  TestServer server(config);
  Client fresh(server.port()), used(server.port());
  EXPECT_EQ(used.call("GET", "/health").status, 200);
  EXPECT_TRUE(fresh.closed_by_server());
  EXPECT_TRUE(used.closed_by_server());
}

TEST(HttpLimits, ThousandPipelinedRequestsAreAllAnswered) {
  TestServer server;
  Client client(server.port());
  std::string batch;
  for (int i = 0; i < 1000; ++i) batch += request_text("GET", "/version", "");
  std::thread sender([&] { client.send(batch); });
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.read_reply().status, 200) << i;
  sender.join();
}

TEST(HttpLimits, PipelinedRequestsBehindAGenerationKeepTheirOrder) {
  TestServer server;
  Client client(server.port());
  client.send(request_text("POST", "/generate", R"({"text": "a"})") +
              request_text("GET", "/version", ""));
  EXPECT_TRUE(client.read_reply().json().contains("meta_info"));
  EXPECT_TRUE(client.read_reply().json().contains("version"));
}

TEST(HttpLimits, HalfClosedAndResetConnectionsLeaveNothing) {
  TestServer server;
  {
    Client half(server.port());
    half.send(request_text("GET", "/version", ""));
    half.shutdown_write();
    EXPECT_EQ(half.read_reply().status, 200);
    Client body(server.port());
    body.send(
        "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
        "100\r\n\r\n{");
    body.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
  server.expect_healthy();
}

TEST(HttpLimits, ChunkedBodiesAndExpectContinueWork) {
  TestServer server;
  Client client(server.port());
  client.send(chunked("8\r\n{\"prompt\r\n6;ext=1\r\n\":\"a\"}\r\n0\r\nTrailer: x\r\n\r\n"));
  EXPECT_EQ(client.read_reply().status, 200);
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: 14\r\n\r\n");
  EXPECT_EQ(client.read_some().substr(0, 12), "HTTP/1.1 100");
  client.send(R"({"prompt":"a"})");
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(HttpLimits, ConnectionsAboveTheCapAreRefusedAndTheLoopLives) {
  TestServerConfig config;
  config.limits.max_connections = 10;
  TestServer server(config);
  std::list<Client> open;
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(open.emplace_back(server.port()).call("GET", "/version").status, 200);
  for (int i = 0; i < 20; ++i) {
    Client extra(server.port());
    EXPECT_EQ(extra.read_reply().status, 503);
  }
  for (int i = 0; i < 5; ++i) open.pop_back();
  ASSERT_TRUE(eventually([&] { return server.http->num_connections() == 5; }));
  server.expect_healthy();
}

TEST(HttpLimits, AcceptLoopSurvivesWantOfDescriptors) {
  TestServer server;
  Client before(server.port());
  ASSERT_EQ(before.call("GET", "/version").status, 200);
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  Client waiting(server.port());  // its socket exists; the server's end may not yet
  rlimit tight = old;
  tight.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &tight);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(before.call("GET", "/version").status, 200);
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(waiting.call("GET", "/version").status, 200);
  server.expect_healthy();
}

TEST(HttpLimits, BodiesInFlightAreBounded) {
  TestServerConfig config;
  config.limits.max_bodies_bytes = 100;
  TestServer server(config);
  Client first(server.port()), second(server.port());
  const std::string head =
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
      "80\r\n\r\n";
  first.send(head + "{");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  second.send(head + "{");
  const ClientReply refused_reply = second.read_reply();
  EXPECT_EQ(refused_reply.status, 503);
  EXPECT_FALSE(refused_reply.headers.at("retry-after").empty());
  first.close();
  ASSERT_TRUE(eventually([&] { return server.http->num_connections() == 0; }));
  EXPECT_EQ(server.call("POST", "/tokenize", R"({"prompt": "a"})").status, 200);
}

TEST(HttpLimits, ThousandIdleConnectionsCostLittle) {
  TestServer server;
  server.expect_healthy();
  const long before = resident_kib();
  std::list<Client> open;
  for (int i = 0; i < 1000; ++i) open.emplace_back(server.port());
  ASSERT_TRUE(eventually([&] { return server.http->num_connections() == 1000; }));
  for (Client& client : open) ASSERT_TRUE(client.send(request_text("GET", "/version", "")));
  for (Client& client : open) ASSERT_EQ(client.read_reply().status, 200);
  EXPECT_LT(resident_kib() - before, 32 << 10);
  RecordProperty("kib_per_connection", static_cast<int>((resident_kib() - before) / 1000));
}

TEST(HttpLimits, RequestIdsAreEchoedOrMade) {
  TestServer server;
  EXPECT_EQ(
      server.call("GET", "/version", "", "X-Request-Id: abc-1\r\n").headers.at("x-request-id"),
      "abc-1");
  const std::string made =
      server.call("GET", "/version", "", "X-Request-Id: a b\"c\r\n").headers.at("x-request-id");
  EXPECT_EQ(made.rfind("req-", 0), 0u);
}

TEST(HttpLimits, HeadAnswersWithoutABody) {
  TestServer server;
  Client client(server.port());
  EXPECT_EQ(client.call("HEAD", "/health").status, 200);
  EXPECT_EQ(client.call("GET", "/health").status, 200);
}

TEST(HttpLimits, BusyPortIsBadInputAndSaysWhatToDo) {
  TestServer server;
  try {
    HttpServer second("127.0.0.1", server.port(), 1, ServerLimits{}, *server.router);
    FAIL() << "the port was taken twice";
  } catch (const Error& e) {
    EXPECT_EQ(exit_code(e.kind()), 2);
    EXPECT_NE(e.message().find("--port"), std::string::npos);
    EXPECT_NE(e.message().find(std::to_string(server.port())), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
