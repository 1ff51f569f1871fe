// What must not happen when a peer lies, dies, is slow or is someone else.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "transfer/pull_test_support.h"

namespace baton::transfer {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

PullConnectorOptions over_tcp(std::string engine_id) {
  auto o = options(std::move(engine_id));
  o.transport = TransportMode::kTcp;
  return o;
}

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// A TCP relay on loopback that hands every chunk from P to D to a hook, which may change it.
class Relay {
 public:
  using Hook = std::function<void(std::span<char> from_p)>;
  Relay(int target_port, Hook hook) : target_port_(target_port), hook_(std::move(hook)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }

 private:
  void run() {
    std::vector<std::pair<int, int>> pairs;  // D's side, P's side
    std::vector<char> buffer(1 << 18);
    while (!stop_) {
      std::vector<pollfd> polls = {{listener_, POLLIN, 0}};
      for (const auto& [d, p] : pairs) {
        polls.push_back({d, POLLIN, 0});
        polls.push_back({p, POLLIN, 0});
      }
      if (poll(polls.data(), polls.size(), 20) <= 0) continue;
      if (polls[0].revents != 0) pairs.emplace_back(accept(listener_, nullptr, nullptr), connect_to(target_port_));
      for (size_t i = 1; i < polls.size(); ++i) {
        if (polls[i].revents == 0) continue;
        auto& [d, p] = pairs[(i - 1) / 2];
        const bool from_d = i % 2 == 1;
        const ssize_t n = recv(from_d ? d : p, buffer.data(), buffer.size(), 0);
        if (n <= 0) {
          shutdown(d, SHUT_RDWR);
          shutdown(p, SHUT_RDWR);
          continue;
        }
        if (!from_d) hook_({buffer.data(), static_cast<size_t>(n)});
        for (ssize_t at = 0; at < n;) {
          const ssize_t sent = send(from_d ? p : d, buffer.data() + at, static_cast<size_t>(n - at), MSG_NOSIGNAL);
          if (sent <= 0) break;
          at += sent;
        }
      }
    }
    for (const auto& [d, p] : pairs) {
      close(d);
      close(p);
    }
  }

  int target_port_;
  Hook hook_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(PullFailure, BytesCorruptedOnTheWireAreNeverUsedAndPulledAgain) {
  MetricRegistry metrics;
  auto d = over_tcp("d");
  d.metrics = &metrics;
  Pair pair(over_tcp("p"), d);
  auto params = pair.offer("r", 160);
  std::atomic<int> left = 1;
  size_t seen = 0;
  Relay relay(params.remote_port, [&](std::span<char> bytes) {
    seen += bytes.size();
    // Past the handshake, in the middle of payload.
    if (seen > 200'000 && left > 0 && bytes.size() > 5000) {
      bytes[4000] ^= 0x10;
      --left;
    }
  });
  params.remote_port = relay.port();
  pair.consumer->start(pair.pull("r", params, 160));
  const auto result = pair.result();
  EXPECT_EQ(left, 0);
  ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_TRUE(pair.arrived(160));
  EXPECT_NE(metrics.text().find("baton_handoff_checksum_failures_total 1"), std::string::npos);
}

TEST(PullFailure, LastingCorruptionEndsThePullWithItsGoodPrefix) {
  Pair pair(over_tcp("p"), over_tcp("d"));
  auto params = pair.offer("r", 160);
  // A bit of block 4 rots after it was sealed: every attempt meets it.
  pair.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(100));
  rot(pair.prefill
          .data()[static_cast<size_t>(kLayout.block_offset(Pair::remote(4).value) + kGeometry.unit_offset(2, 1, 1))]);
  pair.consumer->start(pair.pull("r", params, 160));
  const auto result = pair.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kDataLoss);
  EXPECT_EQ(result.valid_tokens, 64);
  EXPECT_TRUE(pair.arrived(64));
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

TEST(PullFailure, ARottenUnitInSharedMemoryIsFound) {
  Pair pair;
  const auto params = pair.offer("r", 160);
  pair.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(100));
  rot(pair.prefill
          .data()[static_cast<size_t>(kLayout.block_offset(Pair::remote(4).value) + kGeometry.unit_offset(2, 1, 1))]);
  pair.consumer->start(pair.pull("r", params, 160));
  const auto result = pair.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kDataLoss);
  EXPECT_EQ(result.valid_tokens, 64);
  EXPECT_TRUE(pair.arrived(64));
}

TEST(PullFailure, AnExpiredLeaseIsReleasedAndNeverServed) {
  for (const bool tcp : {false, true}) {
    auto p = tcp ? over_tcp("p") : options("p");
    p.lease = milliseconds(100);
    Pair pair(p, options("d"));
    const auto params = pair.offer("r", 100);
    EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
    pair.consumer->start(pair.pull("r", params, 100));
    const auto result = pair.result();
    EXPECT_EQ(result.outcome.error().code(), Code::kNotFound);
    EXPECT_EQ(result.valid_tokens, 0);
  }
}

TEST(PullFailure, HoldingARequestKeepsItsLease) {
  auto p = options("p");
  p.lease = milliseconds(600);
  Pair pair(p, options("d"));
  const auto params = pair.offer("r", 100);
  pair.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_TRUE(pair.producer->poll_released().empty());
  pair.consumer->start(pair.pull("r", params, 100));
  EXPECT_TRUE(pair.result().outcome);
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

TEST(PullFailure, DifferentModelsAreRefusedWithBothNames) {
  auto d = options("d");
  d.identity.model_fingerprint = "another model";
  Pair pair(options("p"), d);
  pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
  const auto result = pair.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kMismatch);
  EXPECT_THAT(result.outcome.error().message(), ::testing::HasSubstr("ours m, theirs another model"));
}

TEST(PullFailure, AnotherNumericProfileIsRefusedUnlessAllowed) {
  auto d = options("d");
  d.identity.profile.isa = "avx2";
  {
    Pair pair(options("p"), d);
    pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
    EXPECT_EQ(pair.result().outcome.error().code(), Code::kMismatch);
  }
  auto p = options("p");
  p.allow.allow_other_profile = d.allow.allow_other_profile = true;
  Pair pair(p, d);
  pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
  EXPECT_TRUE(pair.result().outcome);
}

TEST(PullFailure, TheWrongSecretIsRefusedAtOnce) {
  auto p = options("p");
  auto d = options("d");
  p.secret = "right";
  for (const char* secret : {"wrong", ""}) {
    d.secret = secret;
    Pair pair(p, d);
    pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
    const auto result = pair.result();
    EXPECT_EQ(result.outcome.error().code(), Code::kUnauthenticated) << result.outcome.error().to_string();
    EXPECT_LT(result.seconds, 1);
  }
}

TEST(PullFailure, AHostThatIsNoAllowedPeerIsNotConnectedTo) {
  auto d = options("d");
  d.peers = *PeerFilter::parse({"10.0.0.0/8"});
  Pair pair(options("p"), d);
  pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
  const auto result = pair.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.outcome.error().message(), ::testing::HasSubstr("127.0.0.1 (127.0.0.1) is not an allowed peer"));
  EXPECT_EQ(result.valid_tokens, 0);
  EXPECT_LT(result.seconds, 1);
}

// The end of a process closes its sockets, and nothing else is said.
TEST(PullFailure, ADecodeEngineThatDiesGivesTheMemoryBackLongBeforeTheLeaseEnds) {
  auto p = over_tcp("p");
  p.lease = seconds(6);
  Pair pair(p, over_tcp("d"));
  pair.consumer->hold(pair.offer("r", 40));
  std::this_thread::sleep_for(milliseconds(300));  // it is connected and has renewed the lease
  pair.consumer.reset();
  const auto died = std::chrono::steady_clock::now();
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
  EXPECT_LT(std::chrono::steady_clock::now() - died, seconds(2));
}

TEST(PullFailure, AnUnreachablePrefillEngineCostsSecondsNotMinutes) {
  auto pair = std::make_unique<Pair>();
  auto params = pair->offer("r", 20);
  pair->producer.reset();
  pair->consumer->start(pair->pull("r", params, 20));
  const auto result = pair->result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.outcome.error().code(), Code::kUnavailable);
  EXPECT_LT(result.seconds, 5);
}

TEST(PullFailure, ARestartedPrefillEngineDoesNotServeTheOldOffer) {
  auto p = options("p");
  Pair pair(p, options("d"));
  const auto params = pair.offer("r", 20);
  pair.consumer->hold(params);
  std::this_thread::sleep_for(milliseconds(50));
  pair.producer.reset();
  p.port = params.remote_port;
  auto again = make_kv_producer(p, pair.prefill);
  ASSERT_TRUE(again) << again.error().to_string();
  pair.producer = std::move(*again);
  pair.consumer->start(pair.pull("r", params, 20));
  const auto result = pair.result();
  ASSERT_FALSE(result.outcome);
  EXPECT_EQ(result.valid_tokens, 0);
  // The new instance serves new offers over a new connection.
  pair.consumer->start(pair.pull("s", pair.offer("s", 20), 20));
  const auto second = pair.result();
  EXPECT_TRUE(second.outcome) << second.outcome.error().to_string();
}

TEST(PullFailure, GarbageOnThePortHarmsNobody) {
  MetricRegistry metrics;
  auto p = options("p");
  p.metrics = &metrics;
  Pair pair(p, options("d"));
  const auto params = pair.offer("r", 100);
  std::mt19937 random(9);
  std::vector<int> open;
  for (int i = 0; i < 60; ++i) {
    const int fd = connect_to(params.remote_port);
    ASSERT_GE(fd, 0);
    std::string bytes(random() % 3000, '\0');
    for (auto& c : bytes) c = static_cast<char>(random());
    if (i % 3 == 0) {
      // A good header that promises more than may be sent, or a body of noise.
      const uint32_t words[] = {wire::kFrameMagic,
                                (i % 2 == 0 ? 4u : 1u) << 16 | wire::kHandoffVersion,
                                i % 2 == 0 ? 0xFFFFFFFFu : 500u,
                                0,
                                0,
                                0};
      bytes.insert(0, reinterpret_cast<const char*>(words), sizeof(words));
    }
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) {
      close(fd);
    } else {
      open.push_back(fd);  // half-open: sends no more, never closes
    }
  }
  pair.consumer->start(pair.pull("r", params, 100));
  const auto result = pair.result();
  EXPECT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_TRUE(pair.arrived(100));
  for (int fd : open) close(fd);
  EXPECT_EQ(metrics.text().find("baton_handoff_refused_connections_total 0"), std::string::npos);
}

TEST(PullFailure, TooManyConnectionsAreTurnedAwayAndPlacesComeFree) {
  auto p = options("p");
  p.connections_max = 4;
  Pair pair(p, options("d"));
  const auto params = pair.offer("r", 20);
  std::vector<int> open;
  for (int i = 0; i < 10; ++i) open.push_back(connect_to(params.remote_port));
  std::this_thread::sleep_for(milliseconds(50));
  for (int fd : open) close(fd);
  pair.consumer->start(pair.pull("r", params, 20));
  EXPECT_TRUE(pair.result().outcome);
}

TEST(PullFailure, ATakenPortIsSaid) {
  auto arena = *make_arena();
  auto first = options("p");
  auto producer = *make_kv_producer(first, arena);
  auto second = options("q");
  second.port = producer->offer({"r", block_ids({0}), 4, 1}).remote_port;
  const auto refused = make_kv_producer(second, arena);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
}

TEST(PullFailure, WakeIsCalledForResultsAndReleases) {
  std::atomic<int> wakes_p = 0, wakes_d = 0;
  auto p = options("p");
  auto d = options("d");
  p.wake = [&] { ++wakes_p; };
  d.wake = [&] { ++wakes_d; };
  Pair pair(p, d);
  pair.consumer->start(pair.pull("r", pair.offer("r", 20), 20));
  EXPECT_TRUE(pair.result().outcome);
  EXPECT_EQ(pair.released().size(), 1u);
  EXPECT_EQ(wakes_d, 1);
  EXPECT_EQ(wakes_p, 1);
}

// Blocks are rewritten the moment they are released, while D pulls on: D may lose, never be wrong.
TEST(PullFailure, ReleaseAndReuseWhilePulling) {
  for (const bool tcp : {false, true}) {
    auto p = tcp ? over_tcp("p") : options("p");
    Pair pair(p, options("d"));
    std::vector<std::byte> original(pair.prefill.data().begin(), pair.prefill.data().end());
    int good = 0;
    for (int round = 0; round < 30; ++round) {
      std::copy(original.begin(), original.end(), pair.prefill.data().begin());
      const auto params = pair.offer("r", 300);
      pair.consumer->start(pair.pull("r", params, 300));
      std::this_thread::sleep_for(std::chrono::microseconds(round * 40));
      pair.producer->revoke("r");
      EXPECT_EQ(pair.released().size(), 1u);
      for (int64_t i = 0; i < 19; ++i) {
        auto block = pair.prefill.data().subspan(static_cast<size_t>(Pair::remote(i).value * kGeometry.block_bytes()),
                                                 static_cast<size_t>(kGeometry.block_bytes()));
        std::memset(block.data(), round, block.size());
      }
      const auto result = pair.result();
      good += result.outcome.has_value();
      for (int64_t i = 0; i * 16 < result.valid_tokens; ++i) {
        const int tokens = static_cast<int>(std::min<int64_t>(16, result.valid_tokens - i * 16));
        ASSERT_TRUE(same_tokens(original, Pair::remote(i).value, pair.decode.data(), Pair::local(i).value, tokens))
            << "round " << round << " block " << i;
      }
    }
    EXPECT_LE(good, 30);
  }
}

}  // namespace
}  // namespace baton::transfer
