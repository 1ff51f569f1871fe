#include "net/http_parse.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "net/ascii.h"

namespace baton::net {
namespace {

constexpr size_t kMaxChunkLine = 256;
constexpr size_t kMaxTrailerBytes = 16 * 1024;

template <typename... Args>
std::unexpected<HttpError> refuse(int status, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(HttpError{status, fmt::format(format, std::forward<Args>(args)...)});
}

// Bytes of a peer inside a message of ours: printable, short.
std::string quoted(std::string_view text) {
  std::string shown = "\"";
  for (char c : text.substr(0, 40)) shown += (c >= 0x20 && c < 0x7f) ? c : '?';
  return shown + (text.size() > 40 ? "...\"" : "\"");
}

// Cuts one line, without its CRLF, off `text`. HeadScanner has seen to it that every LF follows a CR.
std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end - 1);
  text.remove_prefix(end + 1);
  return line;
}

Parsed<std::pair<std::string_view, std::string_view>> parse_field(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t')
    return refuse(400, "a header line begins with white space (obs-fold); send each field on one line");
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return refuse(400, "header line {} has no colon", quoted(line));
  const auto name = line.substr(0, colon);
  if (!is_token(name)) return refuse(400, "header name {} holds characters that are not allowed", quoted(name));
  const auto value = trim_blanks(line.substr(colon + 1));
  if (!is_field_value(value)) return refuse(400, "the value of header {} holds control characters", name);
  return std::pair(name, value);
}

Parsed<uint64_t> parse_content_length(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.front() < '0')
    return refuse(400, "Content-Length {} is not one decimal number", quoted(text));
  return value;
}

// The fields of a head that decide how its message is read.
struct Framing {
  bool has_length = false, has_coding = false;
  uint64_t length = 0;
  bool close = false, keep_alive = false;
  int hosts = 0;
  std::string_view host, expect;
};

Parsed<void> note_connection(std::string_view value, Framing& framing) {
  while (!value.empty()) {
    const auto option = trim_blanks(value.substr(0, value.find(',')));
    if (equal_ignoring_case(option, "close")) framing.close = true;
    if (equal_ignoring_case(option, "keep-alive")) framing.keep_alive = true;
    const auto comma = value.find(',');
    value = comma == std::string_view::npos ? std::string_view() : value.substr(comma + 1);
  }
  return {};
}

Parsed<void> note_field(std::string_view name, std::string_view value, Framing& framing) {
  if (equal_ignoring_case(name, "content-length")) {
    if (framing.has_length) return refuse(400, "Content-Length is repeated");
    const auto length = parse_content_length(value);
    if (!length) return std::unexpected(length.error());
    framing.length = *length;
    framing.has_length = true;
  } else if (equal_ignoring_case(name, "transfer-encoding")) {
    if (framing.has_coding) return refuse(400, "Transfer-Encoding is repeated");
    if (!equal_ignoring_case(value, "chunked"))
      return refuse(400, "Transfer-Encoding {} is not supported; use chunked or Content-Length", quoted(value));
    framing.has_coding = true;
  } else if (equal_ignoring_case(name, "connection")) {
    return note_connection(value, framing);
  } else if (equal_ignoring_case(name, "host")) {
    ++framing.hosts;
    framing.host = value;
  } else if (equal_ignoring_case(name, "expect")) {
    framing.expect = value;
  }
  return {};
}

Parsed<Framing> parse_fields(std::string_view lines, HttpHeaders& headers) {
  Framing framing;
  for (auto line = next_line(lines); !line.empty(); line = next_line(lines)) {
    const auto field = parse_field(line);
    if (!field) return std::unexpected(field.error());
    if (auto noted = note_field(field->first, field->second, framing); !noted) return std::unexpected(noted.error());
    headers.add(std::string(field->first), std::string(field->second));
  }
  if (framing.has_length && framing.has_coding)
    return refuse(400, "Transfer-Encoding and Content-Length are both given");
  return framing;
}

// "HTTP/1.1" -> 1.
Parsed<int> parse_version(std::string_view text) {
  if (text == "HTTP/1.1") return 1;
  if (text == "HTTP/1.0") return 0;
  const bool shaped = text.size() == 8 && text.starts_with("HTTP/") && text[6] == '.' && text[5] >= '0' &&
                      text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
  if (!shaped) return refuse(400, "{} is not an HTTP version", quoted(text));
  return refuse(505, "{} is not supported; use HTTP/1.1", text);
}

bool is_host(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f && !std::strchr("/\\@?#\"<>^`{|}", c); });
}

Parsed<void> split_target(HttpRequest& request) {
  std::string_view target = request.target;
  for (char c : target)
    if (c <= 0x20 || c >= 0x7f || c == '#')
      return refuse(400, "the request target holds characters that must be escaped");
  if (target == "*" && request.method == "OPTIONS") {
    request.path = "*";
    return {};
  }
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const auto path = target.find_first_of("/?");
    if (path == 0 || !is_host(target.substr(0, path))) return refuse(400, "the request target names no valid host");
    target = path == std::string_view::npos ? "/" : target.substr(path);
    if (target.starts_with('?')) {
      request.query = target.substr(1);
      target = "/";
    }
    break;
  }
  if (!target.starts_with('/')) return refuse(400, "the request target {} is not a path", quoted(target));
  if (const auto mark = target.find('?'); mark != std::string_view::npos) {
    request.query = target.substr(mark + 1);
    target = target.substr(0, mark);
  }
  auto path = percent_decode(target, false);
  if (!path || path->find('\0') != std::string::npos) return refuse(400, "the path has a broken or forbidden escape");
  request.path = std::move(*path);
  return {};
}

Parsed<void> parse_request_line(std::string_view line, RequestHead& head) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return refuse(400, "the request line {} is not 'METHOD target HTTP/1.1'", quoted(line));
  const auto method = line.substr(0, first);
  if (!is_token(method) || method.size() > 32) return refuse(400, "{} is not a method", quoted(method));
  const auto version = parse_version(line.substr(last + 1));
  if (!version) return std::unexpected(version.error());
  head.minor_version = *version;
  head.request.method = method;
  head.request.target = line.substr(first + 1, last - first - 1);
  return split_target(head.request);
}

BodyFraming body_framing(const Framing& framing) {
  if (framing.has_coding) return {BodyFraming::Kind::kChunked, 0};
  if (framing.has_length && framing.length > 0) return {BodyFraming::Kind::kLength, framing.length};
  return {};
}

}  // namespace

Parsed<size_t> HeadScanner::scan(std::string_view bytes) {
  if (!bytes.empty() && !is_token_char(bytes.front()) && bytes.front() != '\r' && bytes.front() != '\n')
    return refuse(400, "these bytes are not HTTP/1.1 (is the client speaking TLS to a plain port?)");
  while (scanned_ < bytes.size()) {
    const void* found = std::memchr(bytes.data() + scanned_, '\n', bytes.size() - scanned_);
    if (!found) break;
    const size_t newline = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    if (newline == line_start_ || bytes[newline - 1] != '\r') return refuse(400, "a line ends in a bare line feed");
    const bool empty_line = newline - line_start_ == 1;
    scanned_ = line_start_ = newline + 1;
    if (scanned_ > limits_.max_bytes) break;
    if (empty_line && lines_ == 0) return refuse(400, "the head begins with an empty line");
    if (empty_line) return scanned_;
    if (++lines_ > limits_.max_count + 1) return refuse(431, "more than {} header fields", limits_.max_count);
  }
  if (bytes.size() > limits_.max_bytes || scanned_ > limits_.max_bytes)
    return refuse(431, "the head is larger than {} bytes", limits_.max_bytes);
  scanned_ = bytes.size();
  return 0;
}

Parsed<RequestHead> parse_request_head(std::string_view head) {
  RequestHead parsed;
  if (auto line = parse_request_line(next_line(head), parsed); !line) return std::unexpected(line.error());
  const auto framing = parse_fields(head, parsed.request.headers);
  if (!framing) return std::unexpected(framing.error());
  if (framing->hosts > 1) return refuse(400, "Host is repeated");
  if (framing->hosts == 0 && parsed.minor_version == 1) return refuse(400, "Host is missing");
  if (!is_host(framing->host)) return refuse(400, "Host {} is not a host", quoted(framing->host));
  if (framing->has_coding && parsed.minor_version == 0) return refuse(400, "Transfer-Encoding in an HTTP/1.0 request");
  parsed.framing = body_framing(*framing);
  parsed.keep_alive = !framing->close && (parsed.minor_version == 1 || framing->keep_alive);
  if (!framing->expect.empty() && parsed.minor_version == 1) {
    if (!equal_ignoring_case(framing->expect, "100-continue"))
      return refuse(417, "Expect {} is not supported", quoted(framing->expect));
    parsed.expect_continue = parsed.framing.kind != BodyFraming::Kind::kNone;
  }
  return parsed;
}

Parsed<ResponseHead> parse_response_head(std::string_view head, bool to_head_request) {
  const auto line = next_line(head);
  ResponseHead parsed;
  const auto version = parse_version(line.substr(0, 8));
  if (!version) return std::unexpected(version.error());
  const auto digit = [&](size_t i) { return line[i] >= '0' && line[i] <= '9'; };
  const bool shaped = line.size() >= 12 && line[8] == ' ' && digit(9) && digit(10) && digit(11) && line[9] != '0' &&
                      (line.size() == 12 || line[12] == ' ') && is_field_value(line);
  if (!shaped) return refuse(400, "the status line {} is not 'HTTP/1.1 200 reason'", quoted(line));
  parsed.status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
  const auto framing = parse_fields(head, parsed.headers);
  if (!framing) return std::unexpected(framing.error());
  if (framing->has_coding && *version == 0) return refuse(400, "Transfer-Encoding in an HTTP/1.0 response");
  parsed.keep_alive = !framing->close && (*version == 1 || framing->keep_alive);
  const int status = parsed.status;
  if (to_head_request || status < 200 || status == 204 || status == 304) return parsed;
  parsed.framing = body_framing(*framing);
  if (!framing->has_coding && !framing->has_length) {
    parsed.framing.kind = BodyFraming::Kind::kUntilClose;
    parsed.keep_alive = false;
  }
  return parsed;
}

BodyDecoder::BodyDecoder(BodyFraming framing, uint64_t max_bytes) : left_(framing.length), max_bytes_(max_bytes) {
  switch (framing.kind) {
    case BodyFraming::Kind::kNone:
      state_ = State::kDone;
      break;
    case BodyFraming::Kind::kLength:
      state_ = framing.length == 0 ? State::kDone : State::kBytes;
      break;
    case BodyFraming::Kind::kChunked:
      state_ = State::kChunkSize;
      break;
    case BodyFraming::Kind::kUntilClose:
      state_ = State::kUntilClose;
      break;
  }
}

bool BodyDecoder::finish() {
  if (state_ == State::kUntilClose) state_ = State::kDone;
  return done();
}

Parsed<void> BodyDecoder::count(uint64_t bytes) {
  if (bytes > max_bytes_ - total_) return refuse(413, "the body is larger than {} bytes", max_bytes_);
  total_ += bytes;
  return {};
}

// Collects a line of the chunk framing; line_ is without CRLF once line_complete_.
Parsed<size_t> BodyDecoder::take_line(std::string_view in) {
  const size_t newline = in.find('\n');
  const size_t used = newline == std::string_view::npos ? in.size() : newline + 1;
  const size_t limit = state_ == State::kTrailer ? kMaxTrailerBytes : kMaxChunkLine;
  if (line_.size() + used > limit) return refuse(state_ == State::kTrailer ? 431 : 400, "a chunk's line is too long");
  line_ += in.substr(0, used);
  if (newline == std::string_view::npos) return used;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') return refuse(400, "a line ends in a bare line feed");
  line_.resize(line_.size() - 2);
  line_complete_ = true;
  return used;
}

Parsed<void> BodyDecoder::chunk_size() {
  const std::string_view line = line_;
  const auto digits = line.substr(0, line.find(';'));
  const bool hex = !digits.empty() && digits.size() <= 15 && std::ranges::all_of(digits, [](char c) {
    return (c >= '0' && c <= '9') || (to_lower(c) >= 'a' && to_lower(c) <= 'f');
  });
  if (!hex || !is_field_value(line)) return refuse(400, "{} is not a chunk size", quoted(line));
  left_ = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
  if (auto counted = count(left_); !counted) return counted;
  state_ = left_ == 0 ? State::kTrailer : State::kChunkBytes;
  return {};
}

Parsed<void> BodyDecoder::trailer() {
  if (line_.empty()) {
    state_ = State::kDone;
    return {};
  }
  trailer_bytes_ += line_.size();
  if (trailer_bytes_ > kMaxTrailerBytes) return refuse(431, "the trailer is larger than {} bytes", kMaxTrailerBytes);
  // Checked and dropped: nothing here uses trailers, and merging them into the head is how they smuggle.
  if (auto field = parse_field(line_); !field) return std::unexpected(field.error());
  return {};
}

Parsed<size_t> BodyDecoder::feed(std::string_view in, std::string& out) {
  const size_t size = in.size();
  while (!in.empty() && state_ != State::kDone) {
    if (state_ == State::kBytes || state_ == State::kChunkBytes) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, in.size()));
      if (state_ == State::kBytes)
        if (auto counted = count(take); !counted) return std::unexpected(counted.error());
      out.append(in.substr(0, take));
      in.remove_prefix(take);
      left_ -= take;
      if (left_ == 0) state_ = state_ == State::kBytes ? State::kDone : State::kChunkEnd;
    } else if (state_ == State::kUntilClose) {
      if (auto counted = count(in.size()); !counted) return std::unexpected(counted.error());
      out.append(in);
      in = {};
    } else {
      const auto used = take_line(in);
      if (!used) return used;
      in.remove_prefix(*used);
      if (!line_complete_) continue;
      line_complete_ = false;
      Parsed<void> step;
      if (state_ == State::kChunkEnd) {
        if (!line_.empty()) return refuse(400, "a chunk is longer than its size says");
        state_ = State::kChunkSize;
      } else {
        step = state_ == State::kChunkSize ? chunk_size() : trailer();
      }
      if (!step) return std::unexpected(step.error());
      line_.clear();
    }
  }
  return size - in.size();
}

}  // namespace baton::net
