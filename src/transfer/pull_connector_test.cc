// Pulls over shared memory, loopback TCP and TLS, in one process and between two.
#include "transfer/pull_connector.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "transfer/pull_test_support.h"
#include "transfer/tls_test_certificate.h"

namespace baton::transfer {
namespace {

using namespace testing;

enum class Path { kShm, kTcp, kSecret, kTls };

class PullTest : public ::testing::TestWithParam<Path> {
 protected:
  Pair make() {
    auto p = options("p");
    auto d = options("d");
    if (GetParam() != Path::kShm) p.transport = d.transport = TransportMode::kTcp;
    if (GetParam() == Path::kShm) d.transport = TransportMode::kShm;
    if (GetParam() == Path::kSecret) p.secret = d.secret = "open sesame";
    if (GetParam() == Path::kTls) {
      p.tls = {.cert = certificate.cert_file, .key = certificate.key_file, .ca = "", .verify_peer = false};
      d.tls.ca = certificate.cert_file;
      p.secret = d.secret = "open sesame";
    }
    p.metrics = d.metrics = &metrics;
    return Pair(std::move(p), std::move(d));
  }
  TestCertificate certificate;
  MetricRegistry metrics;
};

TEST_P(PullTest, MovesWholeAndPartialBlocks) {
  for (const int64_t tokens : {1, 15, 16, 17, 160}) {
    auto pair = make();
    const auto params = pair.offer("r", tokens);
    EXPECT_EQ(params.last_token_id, 42);
    EXPECT_EQ(params.remote_num_prompt_tokens, tokens);
    pair.consumer->start(pair.pull("r", params, tokens));
    const auto result = pair.result();
    ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
    EXPECT_EQ(result.valid_tokens, tokens);
    EXPECT_EQ(result.bytes, kGeometry.sealed_bytes(static_cast<int>(tokens)));
    EXPECT_TRUE(pair.arrived(tokens));
    EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
  }
}

TEST_P(PullTest, SkipsWhatIsHereAndMayWantLessThanWasOffered) {
  auto pair = make();
  const auto params = pair.offer("r", 100);
  pair.consumer->start(pair.pull("r", params, 99, 64));
  const auto result = pair.result();
  ASSERT_TRUE(result.outcome) << result.outcome.error().to_string();
  EXPECT_EQ(result.valid_tokens, 99);
  EXPECT_TRUE(pair.arrived(99, 64));
  EXPECT_FALSE(pair.arrived(64));
}

TEST_P(PullTest, ManyAtOnceShareBlocksAndAConnection) {
  auto pair = make();
  constexpr int kPulls = 20;
  for (int i = 0; i < kPulls; ++i) {
    const auto name = "r" + std::to_string(i);
    // All offer the same blocks, as prefix-cache hits do; D puts each into the same place, which holds the same bytes.
    pair.consumer->start(pair.pull(name, pair.offer(name, 150), 150));
  }
  std::set<std::string> completed, released;
  while (completed.size() < kPulls) {
    const auto results = wait_for([&] { return pair.consumer->poll_completed(); });
    ASSERT_FALSE(results.empty());
    for (const auto& r : results) {
      EXPECT_TRUE(r.outcome) << r.outcome.error().to_string();
      EXPECT_TRUE(completed.insert(r.request_id).second);
    }
  }
  while (released.size() < kPulls) {
    const auto names = pair.released();
    ASSERT_FALSE(names.empty());
    for (const auto& name : names) EXPECT_TRUE(released.insert(name).second);
  }
  EXPECT_TRUE(pair.arrived(150));
  const std::string text = metrics.text();
  EXPECT_NE(text.find("vllm:mooncake_xfer_time_seconds_count 20"), std::string::npos) << text;
  EXPECT_NE(text.find("baton_handoff_offers_ended_total{reason=\"done\"} 20"), std::string::npos) << text;
}

TEST_P(PullTest, ManyLongPullsWaitForOneAnother) {
  auto pair = make();
  constexpr int kPulls = 60;
  constexpr int64_t kTokens = 40 * kBlockSize;  // 3 MB each: more than the sockets hold
  for (int i = 0; i < kPulls; ++i) {
    const auto name = "r" + std::to_string(i);
    pair.consumer->start(pair.pull(name, pair.offer(name, kTokens), kTokens));
  }
  for (int done = 0; done < kPulls;) {
    const auto results = wait_for([&] { return pair.consumer->poll_completed(); });
    ASSERT_FALSE(results.empty());
    for (const auto& r : results) EXPECT_TRUE(r.outcome) << r.outcome.error().to_string();
    done += static_cast<int>(results.size());
  }
  EXPECT_TRUE(pair.arrived(kTokens));
}

TEST_P(PullTest, DeclineFreesWithoutPulling) {
  auto pair = make();
  pair.consumer->decline(pair.offer("r", 50));
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

TEST_P(PullTest, RevokedBlocksAreReleasedOnceAndNotServed) {
  auto pair = make();
  const auto params = pair.offer("r", 50);
  pair.producer->revoke("r");
  pair.producer->revoke("r");
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
  pair.consumer->start(pair.pull("r", params, 50));
  const auto result = pair.result();
  EXPECT_EQ(result.outcome.error().code(), Code::kNotFound);
  EXPECT_EQ(result.valid_tokens, 0);
  EXPECT_TRUE(pair.producer->poll_released().empty());
}

TEST_P(PullTest, ACancelledPullCompletesAndFreesP) {
  auto pair = make();
  pair.consumer->start(pair.pull("r", pair.offer("r", 150), 150));
  pair.consumer->cancel("r");
  const auto result = pair.result();
  // The copy may have been faster.
  if (!result.outcome) EXPECT_EQ(result.outcome.error().code(), Code::kCancelled);
  EXPECT_EQ(pair.released(), std::vector<std::string>{"r"});
}

std::string path_name(const ::testing::TestParamInfo<Path>& param) {
  constexpr const char* kNames[] = {"Shm", "Tcp", "Secret", "Tls"};
  return kNames[static_cast<size_t>(param.param)];
}
INSTANTIATE_TEST_SUITE_P(Paths, PullTest, ::testing::Values(Path::kShm, Path::kTcp, Path::kSecret, Path::kTls),
                         path_name);

// The other process of the next test: offers one request, writes its params to the inherited pipe, says when it is
// released, and ends when its standard input does.
TEST(PullBetweenProcesses, Child) {
  const char* const out = std::getenv("BATON_TEST_CHILD_FD");
  if (out == nullptr) GTEST_SKIP() << "started by TwoProcesses alone";
  auto arena = *make_arena();
  fill(arena.data(), 77);
  auto producer = *make_kv_producer(options("p"), arena);
  const auto params = producer->offer({"r", block_ids({5, 2, 40}), 40, 9});
  const int fd = std::atoi(out);
  const std::string line = params.to_json().dump() + "\n";
  ASSERT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  const auto released = wait_for([&] { return producer->poll_released(); });
  ASSERT_EQ(released, std::vector<std::string>{"r"});
  ASSERT_EQ(write(fd, "released\n", 9), 9);
  char byte;
  (void)!read(STDIN_FILENO, &byte, 1);
}

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

TEST(PullBetweenProcesses, TwoProcesses) {
  for (const TransportMode mode : {TransportMode::kShm, TransportMode::kTcp}) {
    int from_child[2], to_child[2];
    ASSERT_EQ(pipe(from_child), 0);
    ASSERT_EQ(pipe(to_child), 0);
    const std::string fd = std::to_string(from_child[1]);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const pid_t child = fork();
    if (child == 0) {
      setenv("BATON_TEST_CHILD_FD", fd.c_str(), 1);
      dup2(to_child[0], STDIN_FILENO);
      close(to_child[1]);
      close(from_child[0]);
      execl(self.c_str(), self.c_str(), "--gtest_filter=PullBetweenProcesses.Child", "--gtest_brief=1", nullptr);
      _exit(127);
    }
    close(from_child[1]);
    close(to_child[0]);
    const auto json = nlohmann::json::parse(read_line(from_child[0]), nullptr, false);
    ASSERT_TRUE(json.is_object());
    const auto params = wire::KvTransferParams::from_json(json);
    ASSERT_TRUE(params);

    auto arena = *make_arena();
    auto expected = *make_arena();
    fill(expected.data(), 77);
    auto d = options("d");
    d.transport = mode;
    auto consumer = *make_kv_consumer(d, arena.data());
    consumer->start({"r", *params, block_ids({0, 1, 2}), 40, 0});
    const auto results = wait_for([&] { return consumer->poll_completed(); });
    ASSERT_EQ(results.size(), 1u);
    EXPECT_TRUE(results[0].outcome) << results[0].outcome.error().to_string();
    EXPECT_TRUE(same_tokens(expected.data(), 5, arena.data(), 0, 16));
    EXPECT_TRUE(same_tokens(expected.data(), 2, arena.data(), 1, 16));
    EXPECT_TRUE(same_tokens(expected.data(), 40, arena.data(), 2, 8));
    EXPECT_EQ(read_line(from_child[0]), "released");
    close(to_child[1]);
    close(from_child[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace baton::transfer
