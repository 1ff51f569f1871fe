// Names of filters, tests, globals and methods, and how a built-in reads its arguments.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

using TestFunction = Result<bool> (*)(Interpreter&, const Value& input, Arguments& arguments);

// Null where there is none of that name. A filter's `self` is what stands left of the bar.
NativeFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
NativeFunction find_global(std::string_view name);
NativeFunction find_string_method(std::string_view name);
NativeFunction find_dict_method(std::string_view name);
NativeFunction find_sequence_method(std::string_view name);
// A method that would change its object: known, but unsafe in the sandbox.
bool is_mutating_method(Kind kind, std::string_view name);

// The parts of the registries, each in its own file.
struct NamedFunction {
  std::string_view name;
  NativeFunction function;
};
std::vector<NamedFunction> text_filters();
std::vector<NamedFunction> layout_filters();
std::vector<NamedFunction> sequence_filters();
std::vector<NamedFunction> selection_filters();
std::vector<NamedFunction> ordering_filters();
std::vector<NamedFunction> value_filters();

// The arguments in the order of `names`, null where absent. Errors as Python's TypeError would say.
Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names, size_t required = 0);
Result<int64_t> need_int(std::string_view function, const Value& value);
Result<std::string_view> need_string(std::string_view function, const Value& value);
// null, Undefined-free shorthand: the integer or `otherwise` where the argument is absent or None.
Result<int64_t> int_or(std::string_view function, const Value* value, int64_t otherwise);

}  // namespace baton::text::jinja
