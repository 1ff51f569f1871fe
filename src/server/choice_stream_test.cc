// Tokens become text without a byte lost or shown twice, and the reason for the end is the right one.
#include "server/choice_stream.h"

#include <gtest/gtest.h>

#include "server/testing/byte_tokenizer.h"

namespace baton::server {
namespace {

using engine::FinishReason;
using engine::GeneratedToken;
using engine::RequestOutput;
using testing::ByteTokenizer;

RequestOutput output(std::vector<TokenId> tokens, std::optional<FinishReason> finish = std::nullopt) {
  RequestOutput made{.id = "r"};
  for (const TokenId token : tokens) made.tokens.push_back(GeneratedToken{.token = token});
  made.finish = finish;
  return made;
}

TEST(ChoiceStream, AnEndTokenIsCountedButNotShown) {
  const ByteTokenizer tokenizer;
  ChoiceStream choice(tokenizer, CommonFields{}, false);
  EXPECT_EQ(choice.push(output({'h', 'i'})).text, "hi");
  const auto last = choice.push(output({ByteTokenizer::kEos}, FinishReason::kStop));
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.finish_reason, "stop");
  EXPECT_EQ(last.token_ids, std::vector<TokenId>{ByteTokenizer::kEos});
  EXPECT_EQ(choice.completion_tokens(), 3);
  EXPECT_EQ(last.stop_reason.index(), 0u);
}

TEST(ChoiceStream, HalfACharacterIsHeldUntilItIsWhole) {
  const ByteTokenizer tokenizer;
  ChoiceStream choice(tokenizer, CommonFields{}, false);
  EXPECT_EQ(choice.push(output({0xe4, 0xbd})).text, "");
  EXPECT_EQ(choice.push(output({0xa0})).text, "\xe4\xbd\xa0");
  EXPECT_EQ(choice.push(output({0xe4}, FinishReason::kLength)).text, "\xef\xbf\xbd");
}

TEST(ChoiceStream, AStopStringEndsTheChoiceInTheMiddleOfAnOutput) {
  const ByteTokenizer tokenizer;
  CommonFields fields;
  fields.stop = {"bc"};
  ChoiceStream choice(tokenizer, fields, false);
  const auto delta = choice.push(output({'a', 'b', 'c', 'd'}));
  EXPECT_EQ(delta.text, "a");
  EXPECT_EQ(delta.finish_reason, "stop");
  EXPECT_EQ(std::get<std::string>(delta.stop_reason), "bc");
  EXPECT_TRUE(choice.ended_by_stop_string());
  EXPECT_EQ(choice.completion_tokens(), 3);
}

TEST(ChoiceStream, StopStringsWaitForMinTokens) {
  const ByteTokenizer tokenizer;
  CommonFields fields;
  fields.stop = {"a"};
  fields.sampling.min_tokens = 3;
  ChoiceStream choice(tokenizer, fields, false);
  EXPECT_EQ(choice.push(output({'a', 'a'})).text, "aa");
  EXPECT_EQ(choice.push(output({'a'})).finish_reason, "stop");
}

TEST(ChoiceStream, TheLengthLimitShowsWhatAStopStringHeldBack) {
  const ByteTokenizer tokenizer;
  CommonFields fields;
  fields.stop = {"abc"};
  ChoiceStream choice(tokenizer, fields, false);
  EXPECT_EQ(choice.push(output({'x', 'a', 'b'})).text, "x");
  const auto last = choice.push(output({}, FinishReason::kLength));
  EXPECT_EQ(last.text, "ab");
  EXPECT_EQ(last.finish_reason, "length");
}

}  // namespace
}  // namespace baton::server
