// Pickles that would run code, state false lengths, or expand. Each is refused by name, quickly, in
// little memory, and without a process, file or socket.
#include "checkpoint/pytorch/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <functional>

#include "base/build.h"
#include "base/error.h"
#include "base/testing/processor_time.h"
#include "checkpoint/testing/pt_writer.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& bytes) {
  try {
    const Pickle pickle(bytes, "x.bin");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "accepted";
}

const std::string kProto("\x80\x02", 2);
std::string text(std::string_view value) {
  return PickleWriter::text(value);
}
std::string name(std::string_view module, std::string_view name) {
  return PickleWriter::name(module, name);
}
std::string repeat(const std::string& part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

TEST(Pickle, ReadsPlainValues) {
  const std::string bytes = kProto + "}(" + text("a") + "K\7" + text("b") + "](J" +
                            little_endian(std::int32_t{-5}) + "M\1\1e" + text("c") +
                            std::string("\x8a\x02\xff\x7f", 4) + text("d") + "G@\1" +
                            std::string(6, '\0') + "u.rest";
  const Pickle pickle(bytes, "x.bin");
  EXPECT_EQ(bytes.substr(pickle.end()), "rest");
  const auto items = pickle.dict(pickle.root());
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(pickle.text(items[0].first), "a");
  EXPECT_EQ(pickle.integer(items[0].second), 7);
  ASSERT_EQ(pickle.items(items[1].second).size(), 2u);
  EXPECT_EQ(pickle.integer(pickle.items(items[1].second)[0]), -5);
  EXPECT_EQ(pickle.integer(pickle.items(items[1].second)[1]), 257);
  EXPECT_EQ(pickle.integer(items[2].second), 32767);
  EXPECT_EQ(pickle.kind(items[3].second), PickleKind::kFloat);
}

struct BadPickle {
  std::string bytes;
  std::vector<const char*> says;
};

// Pickles that run code, state false lengths or expand (R4).
std::vector<BadPickle> bad_pickles() {
  const std::string system = name("os", "system"), dict = name("collections", "OrderedDict"),
                    rebuild = name("torch._utils", "_rebuild_tensor_v2");
  const std::string tensor =
      PickleWriter::tensor_value(PickleWriter::storage("FloatStorage", "0", 6), 0, {6}, {1});
  const auto long_text = [](char op, std::uint64_t count) {
    return std::string(1, op) + little_endian(count);
  };
  return {
      {system + text("id") + "\x85R.", {"os.system", "not among the names", "byte 0"}},
      {kProto + name("builtins", "eval") + text("1") + "\x85R.", {"builtins.eval"}},
      {kProto + name("__builtin__", "exec") + ")R.", {"__builtin__.exec"}},
      {kProto + name("posix", "system") + ".", {"posix.system"}},
      {kProto + name("torch", "load") + ".", {"torch.load"}},
      {kProto + name("torch._utils", "_rebuild_device_tensor_from_numpy") + ".",
       {"_rebuild_device_tensor_from_numpy"}},
      {kProto + name("collections", "OrderedDict.fromkeys") + ".", {"OrderedDict.fromkeys"}},
      {kProto + name("pickle", "loads") + "C\4N.N.\x85R.", {"pickle.loads"}},
      {kProto + text("os") + "q" + std::string(1, '\0') + text("system") + "q\1" + "h" +
           std::string(1, '\0') + "h\1\x93.",
       {"os.system"}},
      {kProto + "K\1K\1\x93.", {"a name is not made of texts"}},
      {kProto + "(ios\nsystem\n.", {"INST", "os.system"}},
      {kProto + "\x82\1.", {"EXT1"}},
      {kProto + "\x83\1\1.", {"EXT2"}},
      {kProto + "\x84\1\1\1\1.", {"EXT4"}},
      {kProto + dict + ")\x81.", {"NEWOBJ"}},
      {kProto + "(" + dict + "o.", {"OBJ"}},
      {kProto + "P0\n.", {"PERSID"}},
      {"S'x'\n.", {"STRING"}},
      {kProto + "K\1)R.", {"calls an integer"}},
      {kProto + text("f") + ")R.", {"calls a text"}},
      {kProto + tensor + ")R.", {"calls a tensor"}},
      {kProto + dict + "]R.", {"calls with is a list, not a tuple"}},
      {kProto + dict + "K\1\x85R.", {"collections.OrderedDict is called with 1 values"}},
      {kProto + name("torch", "FloatStorage") + ")R.", {"torch.FloatStorage is called"}},
      {kProto + name("torch", "float8_e5m2") + ")R.", {"torch.float8_e5m2 is called"}},
      {kProto + rebuild + ")R.", {"_rebuild_tensor_v2 is called with 0 values"}},
      {kProto + rebuild + "(K\1K\1))tR.", {"lies in an integer, not in a storage"}},
      {kProto + rebuild + "(" + PickleWriter::storage("FloatStorage", "0", 6) + text("0") + "))tR.",
       {"offset of a tensor is a text"}},
      {kProto + rebuild + "(" + PickleWriter::storage("UntypedStorage", "0", 6) + "K" +
           std::string(1, '\0') + "))tR.",
       {"do not agree"}},
      {kProto + tensor + "}b.", {"sets attributes of a tensor"}},
      {kProto + "K\1}b.", {"sets attributes of an integer"}},
      {kProto + "K\1Q.", {"stands for a storage is an integer"}},
      {kProto + "(" + text("module") + ")" + text("0") + text("cpu") + "K\1tQ.",
       {"is not (\"storage\""}},
      {kProto + "(" + text("storage") + dict + text("0") + text("cpu") + "K\1tQ.",
       {"is not (\"storage\""}},
      {"", {"cut short"}},
      {kProto, {"cut short"}},
      {kProto + "K", {"cut short"}},
      {kProto + ".", {"ends with 0 values"}},
      {kProto + "NN.", {"ends with 2 values"}},
      {kProto + "N(.", {"ends with"}},
      {kProto + long_text('\x8d', 1ull << 62), {"claims 4611686018427387904 bytes"}},
      {kProto + long_text('\x8e', 1ull << 62), {"claims 4611686018427387904 bytes", "0 are left"}},
      {kProto + long_text('\x96', ~0ull), {"claims 18446744073709551615 bytes"}},
      {kProto + "X\xff\xff\xff\xff", {"claims 4294967295 bytes"}},
      {kProto + long_text('\x95', 1ull << 40) + "N.", {"a frame claims"}},
      {kProto + std::string("\x8a\xffx", 3), {"claims 255 bytes"}},
      {std::string("\x80\1N.", 4), {"protocol is 1"}},
      {std::string("\x80\xffN.", 4), {"protocol is 255"}},
      {kProto + "\xff.", {"0xff is no opcode"}},
      {kProto + "cos", {"does not end"}},
      {kProto + "c" + std::string(4000, 'x') + "\n\n", {"does not end"}},
      {kProto + "Nr\xff\xff\xff\x7f.", {"remembers value 2147483647 after 0"}},
      {kProto + "q\1", {"empty stack"}},
      {kProto + "h\5.", {"recalls value 5"}},
      {kProto + "0.", {"empty stack"}},
      {kProto + "R.", {"empty stack"}},
      {kProto + "N(R.", {"empty stack"}},
      {kProto + "t.", {"asks for a mark"}},
      {kProto + "N(\x85.", {"empty stack"}},
      {kProto + "\x87.", {"empty stack"}},
      {kProto + "a.", {"empty stack"}},
      {kProto + "Na.", {"nothing to put values in, a list"}},
      {kProto + "}Na.", {"meant for a list into a dict"}},
      {kProto + "(Ne.", {"nothing to put values in, a list"}},
      {kProto + "](NNu.", {"meant for a dict into a list"}},
      {kProto + "}(Nu.", {"a key has no value"}},
      {kProto + "}N(Ns.", {"empty stack"}},
      {kProto + "b.", {"empty stack"}},
      {kProto + ")" + repeat("\x85", 1'000'000) + ".", {"nest deeper than 64"}},
      {kProto + repeat("]", 100) + repeat("a", 99) + ".", {"nest deeper than 64"}},
      {kProto + repeat("(", 2000), {"more than 1000 marks"}},
      {kProto + repeat("N", 3'000'000) + ".", {"more than 1000000 values"}},
      {kProto + "Nq" + std::string(1, '\0') + repeat(std::string("h\0", 2), 2'000'000) + ".",
       {"holds more than 1000000 values"}},
      {kProto + repeat("]", 300'000) + ".", {"more than 200000 lists"}},
      {kProto + "](" + repeat("N", 900'000) + "e(" + repeat("K\1", 200'000) + ".",
       {"more than 1000000 values"}},
      {kProto + "Nq" + std::string(1, '\0') +
           repeat("(" + repeat(std::string("h\0", 2), 100'000) + "t0", 30) + ".",
       {"tuples have more than 1000000"}},
      {kProto + "Nq" + std::string(1, '\0') + "]" +
           repeat("(" + repeat(std::string("h\0", 2), 100'000) + "e", 30) + ".",
       {"lists and dicts have more than 1000000"}},
  };
}

TEST(Pickle, WhatIsNoPlainDataIsRefusedByName) {
  for (const BadPickle& row : bad_pickles()) {
    std::string message;
    const double limit = kTimedBuild ? 2000 : 1e9;
    const double spent = idle_core_milliseconds(limit, [&] { message = error_of(row.bytes); });
    for (const char* says : row.says) EXPECT_THAT(message, HasSubstr(says));
    EXPECT_THAT(message, HasSubstr("x.bin"));
    EXPECT_LT(spent, limit) << message;
  }
}

// Values that contain themselves are harmless: nothing walks them.
TEST(Pickle, ValuesThatHoldThemselves) {
  EXPECT_EQ(error_of(kProto + "]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a."),
            "accepted");
  EXPECT_EQ(error_of(kProto + "}q" + std::string(1, '\0') + text("a") + "h" + std::string(1, '\0') +
                     "s."),
            "accepted");
}

// Runs `body` in a child process that may not open a file, make a socket or start a process. Where
// the build has plain memory, the child may take at most `extra_bytes` more. Returns its exit
// status: 0 when body returned.
int in_a_cage(const std::function<void()>& body, std::uint64_t extra_bytes) {
  const pid_t child = ::fork();
  if (child == 0) {
    if constexpr (kTimedBuild) {
      std::uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit limit{pages * 4096 + extra_bytes, pages * 4096 + extra_bytes};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(3);
      constexpr auto kNumber = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
      std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber)};
      for (const long call :
           {SYS_open, SYS_openat, SYS_creat, SYS_socket, SYS_connect, SYS_execve, SYS_execveat,
            SYS_fork, SYS_vfork, SYS_clone, SYS_clone3, SYS_unlink, SYS_unlinkat, SYS_kill}) {
        filter.push_back(
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
      }
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
      const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
      if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
          ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        ::_exit(3);
    }
    try {
      body();
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Pickle, NothingRunsAndMemoryIsBounded) {
  if constexpr (kTimedBuild) {  // the sandbox closes
    EXPECT_EQ(in_a_cage([] { std::ifstream("/proc/self/statm").get(); }, 64 << 20), 128 + SIGSYS);
    EXPECT_EQ(in_a_cage(
                  [] {
                    const std::vector<char> much(256 << 20, 'x');
                    ::_exit(much[5] == 'x' ? 0 : 1);
                  },
                  64 << 20),
              2);
  }
  for (const BadPickle& row : bad_pickles())
    EXPECT_EQ(in_a_cage(
                  [&] {
                    try {
                      const Pickle pickle(row.bytes, "x.bin");
                    } catch (const Error&) {
                      return;
                    }
                    ::_exit(1);
                  },
                  64 << 20),
              0)
        << row.says.front();
}

}  // namespace
}  // namespace sluice
