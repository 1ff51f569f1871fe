// Any text, any parser, any cut: the whole text and its bytes one by one give the same events, joined; calls are well
// ordered. The first two bytes choose the parsers.
#include <cstdlib>

#include "text/output_parser.h"

namespace {

using baton::text::OutputEvent;
using baton::text::OutputEvents;

std::string joined(const OutputEvents& events) {
  std::string reasoning, content, calls;
  bool running = false;
  for (const auto& event : events) {
    if (event.kind == OutputEvent::Kind::kReasoning) reasoning += event.text;
    if (event.kind == OutputEvent::Kind::kContent) content += event.text;
    if (event.kind == OutputEvent::Kind::kCallBegin) {
      if (running || event.text.empty()) std::abort();
      running = true;
      calls += "\x01" + event.id + "\x02" + event.text + "\x03";
    }
    if (event.kind == OutputEvent::Kind::kCallArguments) {
      if (!running) std::abort();
      calls += event.text;
    }
    if (event.kind == OutputEvent::Kind::kCallEnd) {
      if (!running) std::abort();
      running = false;
    }
  }
  if (running) std::abort();
  return reasoning + "\x04" + content + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using baton::text::OutputFormat;
  if (size < 2) return 0;
  const auto name = [](const std::vector<std::string>& names, uint8_t choice) {
    const size_t at = choice % (names.size() + 1);
    return at == names.size() ? std::string() : names[at];
  };
  const auto format = OutputFormat::make(name(OutputFormat::reasoning_names(), data[0]),
                                         name(OutputFormat::tool_names(), data[1] & 15));
  if (!format) return 0;
  const OutputFormat::Options options{
      .thinking = {}, .starts_inside = {}, .calls = (data[1] & 16) == 0, .token_markers = nullptr};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  auto whole = format->make_parser(options), bytes = format->make_parser(options);
  if (!whole) return 0;
  OutputEvents of_whole, of_bytes;
  whole->push(text, false, of_whole);
  whole->finish(of_whole);
  for (size_t i = 0; i < text.size(); ++i) bytes->push(text.substr(i, 1), false, of_bytes);
  bytes->finish(of_bytes);
  if (joined(of_whole) != joined(of_bytes)) std::abort();
  return 0;
}
