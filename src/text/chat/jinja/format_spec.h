// One formatted field, shared by "%..." and str.format.
#pragma once

#include <string>
#include <string_view>

#include "text/chat/jinja/value.h"

namespace baton::text::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';       // '<' '>' '^' '=' or none
  char sign = '\0';        // '+' ' ' or none
  bool alternate = false;  // #
  char group = '\0';       // ',' or '_'
  int width = 0;
  int precision = -1;
  char type = '\0';
};

constexpr int kFormatWidthMax = 10'000;

// A number by one of d i u x X o b c e E f F g G % or none. Error for a type that does not fit the value.
Result<std::string> format_number(const Value& value, const FormatSpec& spec);
// Pads to the width. `numeric` decides the default side and lets '=' work.
std::string pad_field(std::string text, const FormatSpec& spec, bool numeric);
// "[[fill]align][sign][#][0][width][,][.precision][type]"
Result<FormatSpec> parse_format_spec(std::string_view text);

}  // namespace baton::text::jinja
