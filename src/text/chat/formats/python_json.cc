#include "text/chat/formats/python_json.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "text/chat/jinja/value.h"

namespace baton::text {
namespace {

using nlohmann::ordered_json;

constexpr int kDepthMax = 200;

std::string float_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return jinja::float_text(value);
}

class Writer {
 public:
  explicit Writer(PythonJsonStyle style) : style_(style) {}
  std::string take() { return std::move(out_); }

  Result<void> write(const ordered_json& value, int depth) {
    if (depth > kDepthMax) {
      return fail(Code::kInvalidArgument, "JSON nested more than {} levels deep", kDepthMax);
    }
    if (value.is_object()) return write_object(value, depth);
    if (value.is_array()) return write_array(value, depth);
    if (value.is_number_float()) {
      out_ += float_json(value.get<double>());
    } else {  // strings escape as Python's: only quotes, backslashes and controls
      out_ += value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    }
    return {};
  }

 private:
  void separate(bool first) {
    if (!first) out_ += style_.compact ? "," : ", ";
  }

  Result<void> write_object(const ordered_json& object, int depth) {
    std::vector<std::pair<const std::string*, const ordered_json*>> members;
    members.reserve(object.size());
    for (auto it = object.begin(); it != object.end(); ++it) members.push_back({&it.key(), &it.value()});
    if (style_.sort_keys) {  // bytes of UTF-8 order as code points do
      std::sort(members.begin(), members.end(), [](auto a, auto b) { return *a.first < *b.first; });
    }
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      separate(i == 0);
      out_ += ordered_json(*members[i].first).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
      out_ += style_.compact ? ":" : ": ";
      BATON_TRY(write(*members[i].second, depth + 1));
    }
    out_ += '}';
    return {};
  }

  Result<void> write_array(const ordered_json& array, int depth) {
    out_ += '[';
    for (size_t i = 0; i < array.size(); ++i) {
      separate(i == 0);
      BATON_TRY(write(array[i], depth + 1));
    }
    out_ += ']';
    return {};
  }

  PythonJsonStyle style_;
  std::string out_;
};

}  // namespace

Result<std::string> python_json(const ordered_json& value, PythonJsonStyle style) {
  Writer writer(style);
  BATON_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace baton::text
