// The file is a protocol buffer: tag, value, tag, value. ModelProto.normalizer_spec is its field 3, denormalizer_spec
// field 5, and in both precompiled_charsmap is field 2: a u32 with the bytes of a trie, the trie, and the replacements,
// each ended by a NUL. The trie is a double array: an array of u32 units in which the unit at `place` leads, over the
// character c, to the unit at place ^ offset ^ c.
#include "text/tokenizer/sentencepiece_check.h"

#include <cstdint>
#include <cstring>

namespace baton::text {
namespace {

std::unexpected<Status> broken(std::string_view what) {
  return fail(Code::kInvalidArgument, "tokenizer.model: {}: the file is damaged", what);
}

class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}
  bool done() const { return rest_.empty(); }

  struct Field {
    uint64_t number = 0;
    std::string_view bytes;  // of a length-delimited field
  };
  Result<Field> next() {
    BATON_TRY_ASSIGN(const uint64_t tag, varint());
    Field field{.number = tag >> 3, .bytes = {}};
    uint64_t size = 0;
    switch (tag & 7) {
      case 0:
        BATON_TRY(varint());
        return field;
      case 1:
        size = 8;
        break;
      case 2: {
        BATON_TRY_ASSIGN(size, varint());
        break;
      }
      case 5:
        size = 4;
        break;
      default:
        return broken("a field of unknown kind");
    }
    if (size > rest_.size()) return broken("cut short");
    if ((tag & 7) == 2) field.bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return broken("cut short");
  }

  std::string_view rest_;
};

class Trie {
 public:
  Trie(std::string_view units, size_t replacement_bytes) : units_(units), replacement_bytes_(replacement_bytes) {}

  Result<void> check() const {
    for (size_t place = 0; place < count(); ++place) {
      const uint32_t unit = at(place);
      if (unit & kValue) continue;  // no character leads on from here
      const size_t target = place ^ size_t { (unit >> 10) << ((unit & (1u << 9)) >> 6) };
      if ((target | 0xFF) >= count()) return broken("its character map leads outside of the map");
      const bool ends_here = (unit & (1u << 8)) != 0;
      if (ends_here && (at(target) & ~kValue) >= replacement_bytes_) {
        return broken("its character map names a replacement that is not there");
      }
    }
    return {};
  }

 private:
  static constexpr uint32_t kValue = 1u << 31;
  size_t count() const { return units_.size() / 4; }
  uint32_t at(size_t place) const {
    uint32_t unit = 0;
    std::memcpy(&unit, units_.data() + place * 4, 4);
    return unit;
  }

  std::string_view units_;
  size_t replacement_bytes_;
};

Result<void> check_character_map(std::string_view map) {
  if (map.empty()) return {};
  uint32_t trie_bytes = 0;
  if (map.size() <= sizeof trie_bytes) return broken("its character map is cut short");
  std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  map.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > map.size() || trie_bytes < 4) return broken("its character map is cut short");
  const std::string_view replacements = map.substr(trie_bytes);
  if (!replacements.empty() && replacements.back() != '\0') return broken("its character map is cut short");
  return Trie(map.substr(0, trie_bytes), replacements.size()).check();
}

}  // namespace

Result<void> check_sentencepiece_model(std::string_view model) {
  for (FieldReader fields(model); !fields.done();) {
    BATON_TRY_ASSIGN(const auto field, fields.next());
    if (field.number != 3 && field.number != 5) continue;
    for (FieldReader members(field.bytes); !members.done();) {
      BATON_TRY_ASSIGN(const auto member, members.next());
      if (member.number == 2) BATON_TRY(check_character_map(member.bytes));
    }
  }
  return {};
}

}  // namespace baton::text
