#include "wire/ordered_json.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace baton::wire {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIndexAbove = 16;  // members; fewer are found faster without
constexpr uint64_t kValuesOfMember = 16;

// What the library says of the text, which may quote bytes that are no UTF-8.
std::string not_json(const std::exception& error) {
  return "is not valid JSON: " + Json(error.what()).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Builds the value from the library's events.
class Builder {
 public:
  explicit Builder(int depth_max) : depth_max_(static_cast<size_t>(depth_max)) {}

  bool null() { return place(Json(nullptr)) != nullptr; }
  bool boolean(bool value) { return place(Json(value)) != nullptr; }
  bool number_integer(int64_t value) { return place(Json(value)) != nullptr; }
  bool number_unsigned(uint64_t value) { return place(Json(value)) != nullptr; }
  bool number_float(double value, const std::string&) { return place(Json(value)) != nullptr; }
  bool string(std::string& value) { return place(Json(std::move(value))) != nullptr; }
  bool binary(Json::binary_t&) { return refuse(Code::kInvalidArgument, "is not valid JSON: a binary value"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    slot_ = member(open_.back(), std::move(value));
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    return refuse(Code::kInvalidArgument, not_json(error));
  }

  Json take() { return std::move(root_); }
  Status status() const { return status_; }

 private:
  struct Open {
    Json* value;
    // Ordered, not hashed: no choice of keys makes it slow.
    std::map<std::string, size_t, std::less<>> places;
  };

  bool refuse(Code code, std::string why) {
    status_ = Status(code, std::move(why));
    return false;
  }

  // The member's value, which may be there already.
  static Json* member(Open& object, std::string name) {
    // As the vector that it is: the map's own ways in look every key up from the start.
    Json::object_t::Container& members = object.value->get_ref<Json::object_t&>();
    if (members.size() <= kIndexAbove) {
      for (auto& [key, value] : members) {
        if (key == name) return &value;
      }
    } else {
      if (object.places.empty()) {
        for (size_t at = 0; at < members.size(); ++at) object.places.emplace(members[at].first, at);
      }
      const auto [place, is_new] = object.places.try_emplace(name, members.size());
      if (!is_new) return &members[place->second].second;
    }
    members.emplace_back(std::move(name), nullptr);
    return &members.back().second;
  }

  // Where the value went; null once there are too many.
  Json* place(Json value) {
    values_ += slot_ == nullptr ? 1 : kValuesOfMember;
    if (values_ > kJsonValuesMax) {
      refuse(Code::kOutOfRange, "holds too many values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (Json* slot = std::exchange(slot_, nullptr)) {
      *slot = std::move(value);
      return slot;
    }
    open_.back().value->push_back(std::move(value));
    return &open_.back().value->back();
  }

  bool open(Json value) {
    if (open_.size() >= depth_max_) {
      return refuse(Code::kInvalidArgument, fmt::format("nests deeper than {} levels", depth_max_));
    }
    // Only the innermost open value grows, so the pointers to those around it stay good.
    Json* slot = place(std::move(value));
    if (slot != nullptr) open_.push_back({slot, {}});
    return slot != nullptr;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  size_t depth_max_;
  Json root_;
  std::vector<Open> open_;
  Json* slot_ = nullptr;  // of the key just read
  uint64_t values_ = 0;
  Status status_{Code::kInvalidArgument, "is not valid JSON"};
};

}  // namespace

Result<Json> parse_ordered_json(std::string_view text, int depth_max) {
  Builder builder(depth_max);
  try {
    if (!Json::sax_parse(text.data(), text.data() + text.size(), &builder)) return fail(builder.status());
  } catch (const std::exception& error) {
    return fail(Status(Code::kInvalidArgument, not_json(error)));
  }
  return builder.take();
}

}  // namespace baton::wire
