// The encrypted connection: bytes of any number in both directions, other keys, changed bytes.
#include "distributed/hosts/secure_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kSecret = "a secret of thirty-two characters";

struct Pair {
  explicit Pair(std::string_view other_secret = kSecret,
                std::uint64_t rekey_bytes = SecureSocket::kRekeyBytes) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    here = std::make_unique<SecureSocket>(fds[0], NodeKey(kSecret), SecureSocket::kServer,
                                          rekey_bytes);
    there = std::make_unique<SecureSocket>(fds[1], NodeKey(other_secret), SecureSocket::kClient,
                                           rekey_bytes);
  }
  // What went wrong on each side.
  std::pair<std::string, std::string> meet() {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    const auto one = [&](SecureSocket& socket, std::string& why) {
      try {
        socket.handshake(deadline);
      } catch (const Error& error) {
        why = error.message();
      }
    };
    std::pair<std::string, std::string> out;
    std::thread other([&] { one(*there, out.second); });
    one(*here, out.first);
    other.join();
    return out;
  }
  std::unique_ptr<SecureSocket> here, there;
};

std::vector<std::byte> pattern(std::size_t size, int seed) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i)
    out[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<std::size_t>(seed));
  return out;
}

void send_all(SecureSocket& socket, std::span<const std::byte> head,
              std::span<const std::byte> payload) {
  SecureSocket::Sent sent = socket.send(head, payload);
  while (sent == SecureSocket::kPart) {
    socket.await_room(100);
    sent = socket.flush() ? SecureSocket::kPart : SecureSocket::kAll;
  }
  EXPECT_EQ(sent, SecureSocket::kAll);
}

TEST(SecureSocket, CarriesBytesBothWaysAtOnceAndTakesNewKeys) {
  for (const std::uint64_t rekey_bytes : {SecureSocket::kRekeyBytes, std::uint64_t{100'000}}) {
    Pair pair(kSecret, rekey_bytes);
    const auto [here, there] = pair.meet();
    ASSERT_EQ(here + there, "");
    const std::size_t sizes[] = {0, 1, 24, 16'360, 16'384, 70'000, 3'000'000};
    const auto talk = [&](SecureSocket& socket, int own, int other) {
      std::thread sender([&] {
        for (int round = 0; round < 3; ++round)
          for (const std::size_t size : sizes)
            send_all(socket, pattern(24, own), pattern(size, own + round));
      });
      for (int round = 0; round < 3; ++round)
        for (const std::size_t size : sizes) {
          std::vector<std::byte> head(24), payload(size);
          EXPECT_TRUE(socket.read(head));
          EXPECT_TRUE(socket.read(payload));
          EXPECT_EQ(head, pattern(24, other));
          EXPECT_EQ(payload, pattern(size, other + round));
        }
      sender.join();
    };
    std::thread other([&] { talk(*pair.there, 2, 1); });
    talk(*pair.here, 1, 2);
    other.join();
  }
}

TEST(SecureSocket, AnotherKeyIsRefusedOnBothSides) {
  Pair pair("another secret of the same number of characters");
  const auto [here, there] = pair.meet();
  EXPECT_NE(here.find("it does not have the same key"), std::string::npos) << here;
  EXPECT_NE(there.find("it does not have the same key"), std::string::npos) << there;
}

TEST(SecureSocket, OneSideAloneIsGivenUp) {
  Pair pair;
  const auto start = Clock::now();
  EXPECT_THROW(pair.here->handshake(start + std::chrono::milliseconds(200)), Error);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

// A man in the middle passes on what the sides say, and changes one byte behind the handshake.
TEST(SecureSocket, AChangedByteBreaksTheConnection) {
  int left[2], right[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
  SecureSocket server(left[0], NodeKey(kSecret), SecureSocket::kServer);
  SecureSocket client(right[0], NodeKey(kSecret), SecureSocket::kClient);
  std::atomic<bool> changes{false};
  const auto pass_on = [&](int from, int to) {
    char bytes[4096];
    for (ssize_t count; (count = recv(from, bytes, sizeof bytes, 0)) > 0;) {
      if (changes) bytes[count - 1] ^= 1;
      (void)!write(to, bytes, static_cast<std::size_t>(count));
    }
    shutdown(to, SHUT_WR);
  };
  std::thread up([&] { pass_on(right[1], left[1]); }), down([&] { pass_on(left[1], right[1]); });
  std::thread other([&] { client.handshake(Clock::now() + std::chrono::seconds(10)); });
  server.handshake(Clock::now() + std::chrono::seconds(10));
  other.join();
  std::vector<std::byte> got(100);
  EXPECT_EQ(client.send(pattern(100, 1), {}), SecureSocket::kAll);
  EXPECT_TRUE(server.read(got));
  changes = true;
  EXPECT_EQ(client.send(pattern(100, 1), {}), SecureSocket::kAll);
  EXPECT_FALSE(server.read(got));
  server.shut_down();
  client.shut_down();
  up.join();
  down.join();
  close(left[1]);
  close(right[1]);
}

TEST(NodeKey, IsTheTextOfAFileOfSomeLength) {
  const std::string path = ::testing::TempDir() + "node_key_test";
  const auto write = [&](const std::string& text) {
    std::ofstream(path) << text;
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  };
  const auto same = [](const NodeKey& a, const NodeKey& b) {
    return std::ranges::equal(a.bytes(), b.bytes());
  };
  const std::string secret(64, 'x');
  write(secret + "\n");
  EXPECT_TRUE(same(NodeKey::read(path), NodeKey(secret)));
  EXPECT_FALSE(same(NodeKey::read(path), NodeKey(secret + "x")));
  for (const std::string& bad : {std::string(), std::string(31, 'x'), std::string(31, 'x') + "  \n",
                                 std::string(NodeKey::kMaxSecretBytes + 1, 'x')}) {
    write(bad);
    EXPECT_THROW(NodeKey::read(path), Error) << bad.size();
  }
  std::filesystem::remove(path);
  EXPECT_THROW(NodeKey::read(path), Error);
}

}  // namespace
}  // namespace sluice
