#include "text/chat/parsers/hermes_tools.h"

#include <utility>

namespace baton::text {

std::vector<MarkerSpelling> HermesTools::markers() {
  return {{Marker::kHermesBegin, "<tool_call>", true}, {Marker::kHermesEnd, "</tool_call>", true}};
}

void HermesTools::take(const Lexeme& lexeme) {
  // A region whose JSON is whole may lack its end marker.
  const bool begins = lexeme.marker == Marker::kHermesBegin && (!call_ || call_->complete());
  if (begins) {
    end_region(true, {});
    call_.emplace(writer_);
    region_ = lexeme.text;
  } else if (lexeme.marker == Marker::kHermesEnd && call_) {
    end_region(true, lexeme.text);
  } else if (call_) {
    push(lexeme.text);
  } else if (!called_ && !lexeme.is_token) {
    leading_.content(lexeme.text, writer_);
  }
}

void HermesTools::push(std::string_view text) {
  if (!call_->begun()) region_ += text;
  call_->push(text);
  if (call_->begun()) region_.clear();
}

void HermesTools::end_region(bool by_model, std::string_view end_marker) {
  if (!call_) return;
  call_->finish(by_model);
  if (call_->begun()) {
    called_ = true;
    leading_.drop();
  } else {
    leading_.content(std::exchange(region_, {}), writer_);
    leading_.content(end_marker, writer_);
  }
  call_.reset();
}

void HermesTools::finish() {
  end_region(false, {});
  leading_.show(writer_);
}

}  // namespace baton::text
