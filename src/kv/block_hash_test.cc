// Two different blocks must never share a name, and equal ones always must, in every process.
#include "kv/block_hash.h"

#include <gtest/gtest.h>

#include <set>

namespace baton::kv {
namespace {

TEST(BlockHash, MatchesAnIndependentSha256OfTheStatedEncoding) {
  // Python 3.11, hashlib and struct:
  //   root = sha256(pack('<I',15) + b'baton.kv.root.1' + pack('<I',1) + b'0').digest()
  //   sha256(root + pack('<I3i',3,1,2,3) + pack('<I',1) + pack('<I',4) + b'salt').hexdigest()
  const std::vector<TokenId> tokens{1, 2, 3};
  const std::vector<std::string> extra{"salt"};
  EXPECT_EQ(to_hex(hash_block(root_hash("0"), tokens, extra)),
            "2bf92fac122dd1df13d1e75aafb3e79dd785ea0ea4ad0bb1fbae0f7fea3ecfe5");
}

TEST(BlockHash, EveryInputCounts) {
  const auto root = root_hash("");
  const std::vector<TokenId> a{1, 2}, b{1, 3}, ab{1, 2, 1};
  const std::vector<std::string> none, salt{"s"}, split{"s", ""}, joined{"s", "t"}, one{"st"};
  std::set<BlockHash> seen;
  size_t made = 0;
  for (const auto& parent : {root, root_hash("1"), hash_block(root, a, none)}) {
    for (const auto& tokens : {a, b, ab}) {
      for (const auto& extra : {none, salt, split, joined, one}) {
        seen.insert(hash_block(parent, tokens, extra));
        ++made;
      }
    }
  }
  EXPECT_EQ(seen.size(), made);
}

}  // namespace
}  // namespace baton::kv
