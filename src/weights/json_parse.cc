#include "weights/json_parse.h"

#include <vector>

#include "tensor/buffer.h"

namespace baton::weights {
namespace {

using nlohmann::json;

// Builds the value from the library's events, so that depth, repeated keys and the place of an error are ours.
class Builder {
 public:
  Builder(std::string_view name, DuplicateKeys duplicates) : name_(name), duplicates_(duplicates) {}

  bool null() { return place(json(nullptr)) != nullptr; }
  bool boolean(bool value) { return place(json(value)) != nullptr; }
  bool number_integer(int64_t value) { return place(json(value)) != nullptr; }
  bool number_unsigned(uint64_t value) { return place(json(value)) != nullptr; }
  bool number_float(double value, const std::string&) { return place(json(value)) != nullptr; }
  bool string(std::string& value) { return place(json(std::move(value))) != nullptr; }
  bool binary(json::binary_t&) { return refuse("binary value"); }
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    key_ = std::move(value);
    if (duplicates_ == DuplicateKeys::kRefuse && open_.back()->contains(key_)) {
      return refuse(fmt::format("key \"{}\" appears twice", key_));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& error) {
    status_ = Status(Code::kDataLoss, fmt::format("{}: not JSON at byte {}: {}", name_, position, error.what()));
    return false;
  }

  json take() { return std::move(root_); }
  Status status() const { return status_; }

 private:
  bool refuse(std::string_view why) {
    status_ = Status(Code::kDataLoss, fmt::format("{}: {}", name_, why));
    return false;
  }
  json* place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }
  bool open(json value) {
    if (open_.size() >= static_cast<size_t>(kJsonDepthMax)) {
      return refuse(fmt::format("JSON nests deeper than {}", kJsonDepthMax));
    }
    // Only the innermost open value grows, so the pointers to those around it stay good.
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view name_;
  DuplicateKeys duplicates_;
  json root_;
  std::vector<json*> open_;
  std::string key_;
  Status status_{Code::kDataLoss, "not JSON"};
};

}  // namespace

Result<json> parse_json(std::span<const std::byte> bytes, std::string_view name, DuplicateKeys duplicates) {
  Builder builder(name, duplicates);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  try {
    if (!json::sax_parse(text, text + bytes.size(), &builder)) return fail(builder.status());
  } catch (const std::exception& error) {
    return fail(Code::kDataLoss, "{}: not JSON: {}", name, error.what());
  }
  return builder.take();
}

Result<json> read_json_object(const std::string& path) {
  BATON_TRY_ASSIGN(const auto file, tensor::MappedFile::open(path));
  if (file.bytes().size() > kJsonFileBytesMax) {
    return fail(Code::kOutOfRange, "{} has {} bytes; a configuration file has at most {}", path, file.bytes().size(),
                kJsonFileBytesMax);
  }
  BATON_TRY_ASSIGN(auto value, parse_json(file.bytes(), path, DuplicateKeys::kLastWins));
  if (!value.is_object()) return fail(Code::kDataLoss, "{} must hold a JSON object, not {}", path, value.type_name());
  return value;
}

}  // namespace baton::weights
