// How built-ins read their arguments.
#include "text/chat/jinja/registry.h"

namespace baton::text::jinja {

Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names, size_t required) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return fail(Code::kInvalidArgument, "{}() takes at most {} argument{} ({} given)", function, names.size(),
                names.size() == 1 ? "" : "s", arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < names.size() && names.begin()[i] != name) ++i;
    if (i == names.size()) {
      return fail(Code::kInvalidArgument, "{}() got an unexpected keyword argument '{}'", function, name);
    }
    if (bound[i] != nullptr) {
      return fail(Code::kInvalidArgument, "{}() got multiple values for argument '{}'", function, name);
    }
    bound[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return fail(Code::kInvalidArgument, "{}() missing 1 required positional argument: '{}'", function,
                  names.begin()[i]);
    }
  }
  return bound;
}

Result<int64_t> need_int(std::string_view function, const Value& value) {
  if (value.is_undefined()) return fail(Code::kInvalidArgument, "{}", value.undefined_message());
  if (!value.is_integral()) {
    return fail(Code::kInvalidArgument, "{}(): '{}' object cannot be interpreted as an integer", function,
                type_name(value));
  }
  return value.as_int();
}

Result<int64_t> int_or(std::string_view function, const Value* value, int64_t otherwise) {
  if (value == nullptr || value->is(Kind::kNone)) return otherwise;
  return need_int(function, *value);
}

Result<std::string_view> need_string(std::string_view function, const Value& value) {
  if (value.is_undefined()) return fail(Code::kInvalidArgument, "{}", value.undefined_message());
  if (!value.is_string()) {
    return fail(Code::kInvalidArgument, "{}() argument must be str, not {}", function, type_name(value));
  }
  return std::string_view(value.as_string());
}

}  // namespace baton::text::jinja
