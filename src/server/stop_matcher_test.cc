// A stop string must be found however the text is cut, and nothing of it may be shown too early or lost.
#include "server/stop_matcher.h"

#include <gtest/gtest.h>

namespace baton::server {
namespace {

struct Outcome {
  std::string shown;
  std::optional<std::string> matched;
};

Outcome run(const std::vector<std::string>& stops, bool include, const std::string& text, size_t piece) {
  StopMatcher matcher(stops, include);
  Outcome outcome;
  for (size_t i = 0; i < text.size() && !outcome.matched; i += piece) {
    auto step = matcher.push(text.substr(i, piece));
    outcome.shown += step.text;
    outcome.matched = step.matched;
  }
  if (!outcome.matched) outcome.shown += matcher.finish();
  return outcome;
}

TEST(StopMatcher, EveryCutFindsTheSameStop) {
  const std::string text = "aab aabab end";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const auto outcome = run({"abab", "zz"}, false, text, piece);
    EXPECT_EQ(outcome.shown, "aab a") << piece;
    EXPECT_EQ(outcome.matched, "abab") << piece;
    EXPECT_EQ(run({"abab"}, true, text, piece).shown, "aab aabab") << piece;
  }
}

TEST(StopMatcher, WithoutAMatchNothingIsLost) {
  const std::string text = "ENENDEN";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const auto outcome = run({"END!", "NDE!"}, false, text, piece);
    EXPECT_EQ(outcome.shown, text);
    EXPECT_FALSE(outcome.matched);
  }
}

TEST(StopMatcher, TheEarliestOfSeveralWins) {
  EXPECT_EQ(run({"cd", "b"}, false, "abcd", 4).matched, "b");
  EXPECT_EQ(run({"cd", "b"}, false, "abcd", 4).shown, "a");
}

TEST(StopMatcher, WhileInactiveTextPassesUnread) {
  StopMatcher matcher({"x"}, false);
  EXPECT_EQ(matcher.push("x1", false).text, "x1");
  const auto step = matcher.push("2x3", true);
  EXPECT_EQ(step.text, "2");
  EXPECT_EQ(step.matched, "x");
}

}  // namespace
}  // namespace baton::server
