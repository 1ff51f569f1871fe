#include "proxy/json_scan.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

namespace baton::proxy {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;
uint64_t zero_bytes(uint64_t word) { return (word - kOnes) & ~word & kHighs; }
// Not zero when one of eight bytes ends a run of plain text: a quote, a backslash, a control character.
uint64_t special_bytes(uint64_t word) {
  const uint64_t control = (word - kOnes * 0x20) & ~word & kHighs;
  return control | zero_bytes(word ^ (kOnes * '"')) | zero_bytes(word ^ (kOnes * '\\'));
}

// `at_` is where it stands; every function leaves it behind what it has taken, and returns false for what is not JSON.
class Scanner {
 public:
  Scanner(std::string_view text, int depth_max) : at_(text.data()), end_(at_ + text.size()), depth_left_(depth_max) {}

  bool done() const { return at_ == end_; }
  const char* at() const { return at_; }
  double weight() const { return weight_; }
  bool beyond_ascii() const { return beyond_ascii_; }

  void space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool descend() { return --depth_left_ >= 0; }
  void ascend() { ++depth_left_; }

  // After the opening quote; up to and with the closing one.
  bool string_rest(bool& escaped) {
    for (;;) {
      uint64_t high = 0;
      while (end_ - at_ >= 8) {
        uint64_t word;
        std::memcpy(&word, at_, 8);
        if (special_bytes(word) != 0) break;
        high |= word;
        at_ += 8;
      }
      beyond_ascii_ |= (high & kHighs) != 0;
      // The few bytes up to the special one.
      for (;;) {
        if (at_ == end_) return false;
        const auto c = static_cast<unsigned char>(*at_++);
        if (c == '"') return true;
        if (c < 0x20) return false;
        if (c == '\\') {
          escaped = true;
          if (!escape()) return false;
          break;
        }
        beyond_ascii_ |= c >= 0x80;
      }
    }
  }

  bool value() {
    if (at_ == end_) return false;
    switch (*at_) {
      case '"':
        return text_value();
      case '{':
        return object();
      case '[':
        return array();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        weight_ += kTokenWeight;
        return number();
    }
  }

 private:
  bool text_value() {
    const char* const begin = ++at_;
    bool escaped = false;
    if (!string_rest(escaped)) return false;
    const std::string_view text(begin, static_cast<size_t>(at_ - 1 - begin));
    weight_ += text.starts_with("data:") ? kImageWeight : static_cast<double>(text.size());
    return true;
  }

  bool object() {
    if (!descend()) return false;
    ++at_;
    space();
    if (!take('}')) {
      do {
        space();
        bool escaped = false;
        if (!take('"') || !string_rest(escaped)) return false;
        space();
        if (!take(':')) return false;
        space();
        if (!value()) return false;
        space();
      } while (take(','));
      if (!take('}')) return false;
    }
    ascend();
    return true;
  }

  bool array() {
    if (!descend()) return false;
    ++at_;
    space();
    if (!take(']')) {
      do {
        space();
        if (!value()) return false;
        space();
      } while (take(','));
      if (!take(']')) return false;
    }
    ascend();
    return true;
  }

  bool word(std::string_view expected) {
    if (static_cast<size_t>(end_ - at_) < expected.size() || std::memcmp(at_, expected.data(), expected.size()) != 0)
      return false;
    at_ += expected.size();
    return true;
  }

  bool digits() {
    const char* const begin = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ > begin;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    return true;
  }

  bool unit(int& code) {
    if (end_ - at_ < 4) return false;
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = hex_value(*at_++);
      if (digit < 0) return false;
      code = code * 16 + digit;
    }
    return true;
  }

  // After the backslash.
  bool escape() {
    if (at_ == end_) return false;
    const char c = *at_++;
    if (c != 'u') return c != 0 && std::strchr("\"\\/bfnrt", c) != nullptr;
    int first = 0, second = 0;
    if (!unit(first)) return false;
    if (first < 0xd800 || first > 0xdfff) return true;
    return first < 0xdc00 && take('\\') && take('u') && unit(second) && second >= 0xdc00 && second <= 0xdfff;
  }

  const char* at_;
  const char* const end_;
  int depth_left_;
  double weight_ = 0;
  bool beyond_ascii_ = false;
};

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }

bool members(Scanner& scan, size_t members_max, std::vector<JsonMember>& found) {
  scan.space();
  if (!scan.descend() || !scan.take('{')) return false;
  scan.space();
  if (!scan.take('}')) {
    do {
      scan.space();
      if (found.size() == members_max || !scan.take('"')) return false;
      const char* const key = scan.at();
      bool escaped = false;
      if (!scan.string_rest(escaped) || escaped) return false;
      JsonMember member{.key = between(key, scan.at() - 1), .value = {}};
      if (std::ranges::find(found, member.key, &JsonMember::key) != found.end()) return false;
      scan.space();
      if (!scan.take(':')) return false;
      scan.space();
      const char* const value = scan.at();
      const double before = scan.weight();
      if (!scan.value()) return false;
      member.value = between(value, scan.at());
      member.text_bytes = scan.weight() - before;
      found.push_back(member);
      scan.space();
    } while (scan.take(','));
    if (!scan.take('}')) return false;
  }
  scan.space();
  return scan.done();
}

}  // namespace

std::optional<std::vector<JsonMember>> scan_object(std::string_view object, int depth_max, size_t members_max) {
  Scanner scan(object, depth_max);
  std::vector<JsonMember> found;
  found.reserve(16);
  if (!members(scan, members_max, found)) return std::nullopt;
  if (scan.beyond_ascii() && !simdjson::validate_utf8(object.data(), object.size())) return std::nullopt;
  return found;
}

std::optional<std::vector<std::string_view>> scan_array(std::string_view array, size_t elements_max) {
  Scanner scan(array, INT32_MAX);
  std::vector<std::string_view> found;
  scan.space();
  if (!scan.take('[')) return std::nullopt;
  scan.space();
  if (scan.take(']')) return found;
  do {
    scan.space();
    if (found.size() == elements_max) return found;
    const char* const value = scan.at();
    if (!scan.value()) return std::nullopt;
    found.push_back(between(value, scan.at()));
    scan.space();
  } while (scan.take(','));
  if (!scan.take(']')) return std::nullopt;
  return found;
}

}  // namespace baton::proxy
