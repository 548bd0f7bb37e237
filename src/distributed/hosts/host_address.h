// HOST:PORT, where the nodes of a launch meet.
//
//   const HostAddress place = HostAddress::parse("10.0.0.1:20000");
//   int listener = listen_at(place);                       // node 0
//   int fd = connect_to(place, deadline, why);             // another node; -1: see `why`
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace sluice {

struct HostAddress {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without its brackets
  int port = 0;

  // "HOST:PORT", "[IPV6]:PORT". Error{kBadInput}.
  static HostAddress parse(std::string_view text);
  std::string text() const;
};

// A descriptor that listens at this address of this host and no other. Error{kBadInput}: the host
// has no such address, or the port is in use.
int listen_at(const HostAddress& address);

// A connected descriptor; tries each address of the host once, until `deadline`. -1: `why` says
// what was in the way.
int connect_to(const HostAddress& address, std::chrono::steady_clock::time_point deadline,
               std::string& why);

// Small messages leave at once, and the system looks for a dead connection every few seconds.
void prepare_connection(int fd);

}  // namespace sluice
