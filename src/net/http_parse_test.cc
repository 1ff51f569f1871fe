#include "net/http_parse.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "net/sse.h"
#include "net/stream.h"

namespace baton::net {
namespace {

nlohmann::json load_cases(const std::string& name) {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/http/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  return nlohmann::json::parse(file);
}

// The data files are UTF-8; a character up to U+00FF stands for the byte of that value.
std::string raw_bytes(const std::string& utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    bytes += c < 0x80 ? utf8[i] : static_cast<char>(((c & 3) << 6) | (utf8[++i] & 0x3f));
  }
  return bytes;
}

struct ParsedRequest {
  int status = 0;  // 0: more bytes are needed
  HttpRequest request;
};

// Feeds `bytes` in pieces of `step`, as a connection would.
ParsedRequest parse_request(std::string_view bytes, size_t step) {
  if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  HeadScanner scanner({});
  Parsed<size_t> size = 0;
  size_t seen = 0;
  while (*size == 0) {
    if (seen == bytes.size()) return {};
    seen = std::min(bytes.size(), seen + step);
    size = scanner.scan(bytes.substr(0, seen));
    if (!size) return {size.error().status, {}};
  }
  auto head = parse_request_head(bytes.substr(0, *size));
  if (!head) return {head.error().status, {}};
  constexpr uint64_t kMaxBody = 1u << 20;
  if (head->framing.length > kMaxBody) return {413, {}};
  BodyDecoder decoder(head->framing, kMaxBody);
  for (auto rest = bytes.substr(*size); !decoder.done();) {
    if (rest.empty()) return {};
    const auto used = decoder.feed(rest.substr(0, step), head->request.body);
    if (!used) return {used.error().status, {}};
    rest.remove_prefix(*used);
  }
  return {200, std::move(head->request)};
}

TEST(HttpRequests, CorpusIsAcceptedAndRefusedAtEveryPieceSize) {
  const auto cases = load_cases("requests.json");
  ASSERT_GT(cases.size(), 90u);
  for (const auto& each : cases) {
    const std::string raw = raw_bytes(each["raw"]);
    for (size_t step : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, raw.size()}) {
      const auto parsed = parse_request(raw, step);
      EXPECT_EQ(parsed.status, each["status"].get<int>()) << each["name"] << " step " << step;
      if (each.contains("body")) EXPECT_EQ(parsed.request.body, each["body"].get<std::string>()) << each["name"];
      if (each.contains("path")) EXPECT_EQ(parsed.request.path, each["path"].get<std::string>()) << each["name"];
      if (each.contains("query")) EXPECT_EQ(parsed.request.query, each["query"].get<std::string>()) << each["name"];
    }
  }
}

TEST(HttpResponses, CorpusIsAcceptedAndRefused) {
  const auto cases = load_cases("responses.json");
  ASSERT_GT(cases.size(), 20u);
  for (const auto& each : cases) {
    const std::string raw = raw_bytes(each["raw"]);
    HeadScanner scanner({});
    std::optional<std::string> result;
    bool keep_alive = false;
    const auto size = scanner.scan(raw);
    if (size && *size > 0) {
      if (const auto head = parse_response_head(std::string_view(raw).substr(0, *size), false)) {
        BodyDecoder decoder(head->framing, 1u << 20);
        std::string body;
        if (decoder.feed(std::string_view(raw).substr(*size), body) && decoder.finish()) result = body;
        keep_alive = head->keep_alive;
      }
    }
    if (each["result"].is_null()) {
      EXPECT_FALSE(result.has_value()) << each["name"];
    } else {
      ASSERT_TRUE(result.has_value()) << each["name"];
      EXPECT_EQ(*result, each["result"].get<std::string>()) << each["name"];
      EXPECT_EQ(keep_alive, each["keep_alive"].get<bool>()) << each["name"];
    }
  }
}

TEST(HttpResponses, AnswerToHeadHasNoBody) {
  const auto head = parse_response_head("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", true);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->framing.kind, BodyFraming::Kind::kNone);
  EXPECT_TRUE(head->keep_alive);
}

TEST(BodyDecoder, StopsAtTheEndAndLeavesThePipelinedRequest) {
  BodyDecoder decoder({BodyFraming::Kind::kChunked, 0}, 100);
  std::string body;
  const std::string bytes = "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
  const auto used = decoder.feed(bytes, body);
  ASSERT_TRUE(used);
  EXPECT_EQ(bytes.substr(*used), "GET / HTTP/1.1\r\n");
  EXPECT_EQ(body, "abc");
}

TEST(BodyDecoder, CountsAllChunksAgainstTheLimit) {
  BodyDecoder decoder({BodyFraming::Kind::kChunked, 0}, 5);
  std::string body;
  const auto used = decoder.feed("3\r\nabc\r\n3\r\ndef\r\n", body);
  ASSERT_FALSE(used);
  EXPECT_EQ(used.error().status, 413);
}

TEST(BodyDecoder, RefusesAnEndlessTrailer) {
  BodyDecoder decoder({BodyFraming::Kind::kChunked, 0}, 5);
  std::string body;
  ASSERT_TRUE(decoder.feed("0\r\n", body));
  Parsed<size_t> fed = 0;
  for (int i = 0; i < 10000 && fed; ++i) fed = decoder.feed("Name: value\r\n", body);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().status, 431);
}

TEST(HttpHeaders, NamesCompareWithoutCaseAndSetLeavesOne) {
  HttpHeaders headers;
  headers.add("X-A", "1");
  headers.add("x-a", "2");
  headers.add("B", "3");
  EXPECT_EQ(headers.get("X-a"), "1");
  headers.set("x-A", "4");
  ASSERT_EQ(headers.all().size(), 2u);
  EXPECT_EQ(headers.get("x-a"), "4");
  headers.erase("X-A");
  EXPECT_FALSE(headers.get("x-a"));
}

TEST(Query, ValuesAreDecoded) {
  EXPECT_EQ(query_value("a=1&b=x%20y+z&c", "b"), "x y z");
  EXPECT_EQ(query_value("a=1&b=2&c", "c"), "");
  EXPECT_FALSE(query_value("a=1", "b"));
  EXPECT_FALSE(query_value("b=%zz", "b"));
}

TEST(HostPort, IsParsedInAllItsForms) {
  const auto parsed = [](std::string_view text) { return *parse_host_port(text, 80); };
  EXPECT_EQ(parsed("h:1").host, "h");
  EXPECT_EQ(parsed("h:1").port, 1);
  EXPECT_EQ(parsed("h").port, 80);
  EXPECT_EQ(parsed("[::1]:5").host, "::1");
  EXPECT_EQ(parsed("[::1]:5").port, 5);
  EXPECT_EQ(parsed("[::1]").port, 80);
  EXPECT_EQ(parsed("fe80::1").host, "fe80::1");
  for (const char* bad : {"", ":1", "h:", "h:x", "h:70000", "h:-1", "[::1", "[::1]x", "a b:1", "h/x:1", "http://h:1"})
    EXPECT_FALSE(parse_host_port(bad)) << bad;
  EXPECT_EQ(format_host_port("::1", 5), "[::1]:5");
  EXPECT_EQ(format_host_port("h", 5), "h:5");
}

TEST(Sse, AnyCutGivesTheSameEvents) {
  const std::string bytes =
      ": comment\n\ndata: {\"a\":1}\n\ndata: first\ndata:second\r\n\r\nevent: x\nid: 3\ndata: third\n\n"
      "database: no\n\ndata\n\ndata: [DONE]\r\n\r\ndata: not ended";
  const std::vector<std::string> expected = {"{\"a\":1}", "first\nsecond", "third", "", "[DONE]"};
  EXPECT_EQ(SseReader().feed(bytes), expected);
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second : {first, std::min(first + 1, bytes.size()), (first + bytes.size()) / 2}) {
      SseReader reader;
      std::vector<std::string> events;
      for (auto piece : {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)})
        for (auto& event : reader.feed(piece)) events.push_back(std::move(event));
      EXPECT_EQ(events, expected) << "cut at " << first << " and " << second;
    }
  }
  SseReader reader;
  std::vector<std::string> events;
  for (char c : bytes)
    for (auto& event : reader.feed({&c, 1})) events.push_back(std::move(event));
  EXPECT_EQ(events, expected);
}

TEST(Sse, WriterAndReaderAgree) {
  SseReader reader;
  EXPECT_EQ(reader.feed(sse_event("{\"x\":\"y\"}")), std::vector<std::string>{"{\"x\":\"y\"}"});
}

TEST(Sse, AnEndlessEventOverflows) {
  SseReader reader(1000);
  for (int i = 0; i < 200; ++i) reader.feed("data: xxxx\n");
  EXPECT_TRUE(reader.overflowed());
  EXPECT_TRUE(reader.feed("\n\ndata: a\n\n").empty());
}

}  // namespace
}  // namespace baton::net
