// A tiny HTTP server on this machine, for tests of downloads.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace skytape::test {

/// The server's answer to every request.
struct Answers {
  std::string body;
  int status = 200;        // of a request that it can serve
  bool ranges = true;      // understands "Range: bytes=N-"
  std::size_t cut_at = 0;  // closes a connection after so many bytes of the body; 0: never
  int cuts = 0;            // that many times
};

/// Serves 127.0.0.1 with one connection at a time, from a separate thread, until it is dropped.
class HttpServer {
 public:
  explicit HttpServer(Answers answers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path) const;
  /// The first byte that each request so far asked for.
  [[nodiscard]] std::vector<std::size_t> requests() const;

 private:
  void serve();
  void answer(int connection);

  Answers answers_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;  // of requests_
  std::vector<std::size_t> requests_;
  std::thread thread_;
};

}  // namespace skytape::test
