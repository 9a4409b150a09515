#include "tests/support/http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the client is gone
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace

HttpServer::HttpServer(Answers answers) : answers_(std::move(answers)) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener_, any, size) == 0);  // port 0: one that is free
  REQUIRE(::listen(listener_, 8) == 0);
  REQUIRE(::getsockname(listener_, any, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);  // wakes accept()
  thread_.join();
  ::close(listener_);
}

std::string HttpServer::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + "/" + path;
}

std::vector<std::size_t> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::serve() {
  while (!stopping_) {
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void HttpServer::answer(int connection) {
  std::string request;
  char block[4096];
  while (request.find("\r\n\r\n") == request.npos) {
    const ssize_t got = ::recv(connection, block, sizeof block, 0);
    if (got <= 0) return;
    request.append(block, static_cast<std::size_t>(got));
  }
  const std::string key = "Range: bytes=";
  const std::size_t range = request.find(key);
  const std::size_t asked =
      range == request.npos ? 0 : std::strtoull(request.c_str() + range + key.size(), nullptr, 10);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(asked);
  }
  const std::size_t first = answers_.ranges ? asked : 0, size = answers_.body.size();
  const bool beyond = first > 0 && first >= size;
  const int status = beyond ? 416 : answers_.status == 200 && first > 0 ? 206 : answers_.status;
  const std::string body = status < 300 ? answers_.body.substr(first) : "an error page";
  std::string head = "HTTP/1.1 " + std::to_string(status) + " X\r\nConnection: close\r\n";
  head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  if (status == 206) {
    head += "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(size - 1) + "/" +
            std::to_string(size) + "\r\n";
  }
  send_all(connection, head + "\r\n");
  const bool cut = answers_.cut_at > 0 && answers_.cuts > 0;
  if (cut) --answers_.cuts;
  send_all(connection, std::string_view(body).substr(0, cut ? answers_.cut_at : body.npos));
}

}  // namespace skytape::test
