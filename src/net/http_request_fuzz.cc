// Any bytes, cut at any place: no crash; the same verdict for every cut; and whatever is accepted is read in the same
// way by http_parser (an outside judge), or refused by it: same target, same body, same end.
#include <http_parser.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/http_parse.h"

using namespace baton::net;

namespace {

struct Verdict {
  bool accepted = false;
  int status = 0;
  HttpRequest request;
  size_t consumed = 0;
};

Verdict parse(std::string_view bytes, size_t first_cut) {
  Verdict verdict;
  HeadScanner scanner({.max_bytes = 4096, .max_count = 32});
  size_t seen = std::min(first_cut, bytes.size());
  Parsed<size_t> size = scanner.scan(bytes.substr(0, seen));
  if (size && *size == 0) size = scanner.scan(bytes);
  if (!size) {
    verdict.status = size.error().status;
    return verdict;
  }
  if (*size == 0) return verdict;
  auto head = parse_request_head(bytes.substr(0, *size));
  if (!head) {
    verdict.status = head.error().status;
    return verdict;
  }
  verdict.consumed = *size;
  BodyDecoder decoder(head->framing, 1 << 16);
  for (auto rest = bytes.substr(*size); !decoder.done() && !rest.empty();) {
    const auto used = decoder.feed(rest.substr(0, first_cut + 1), head->request.body);
    if (!used) {
      verdict.status = used.error().status;
      return verdict;
    }
    rest.remove_prefix(*used);
    verdict.consumed += *used;
  }
  verdict.accepted = decoder.done();
  verdict.request = std::move(head->request);
  return verdict;
}

struct Judge {
  std::string target, body;
  bool complete = false;
};

void require(bool condition) {
  if (!condition) std::abort();
}

void compare(std::string_view bytes, const Verdict& ours) {
  Judge judge;
  http_parser parser;
  http_parser_init(&parser, HTTP_REQUEST);
  parser.data = &judge;
  http_parser_settings settings;
  http_parser_settings_init(&settings);
  settings.on_url = [](http_parser* p, const char* at, size_t n) {
    static_cast<Judge*>(p->data)->target.append(at, n);
    return 0;
  };
  settings.on_body = [](http_parser* p, const char* at, size_t n) {
    static_cast<Judge*>(p->data)->body.append(at, n);
    return 0;
  };
  settings.on_message_complete = [](http_parser* p) {
    static_cast<Judge*>(p->data)->complete = true;
    http_parser_pause(p, 1);
    return 0;
  };
  const size_t used = http_parser_execute(&parser, &settings, bytes.data(), bytes.size());
  const auto error = static_cast<http_errno>(parser.http_errno);
  // A judge that refuses can't disagree on where a request ends: it knows fewer methods and targets, and takes
  // "Transfer-Encodingx" for Transfer-Encoding. One that reads on or reads otherwise does.
  if (error != HPE_OK && error != HPE_PAUSED) return;
  if (parser.upgrade) return;
  require(judge.complete);
  require(judge.target == ours.request.target);
  require(judge.body == ours.request.body);
  require(used == ours.consumed || used + 1 == ours.consumed);  // paused on the last byte
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Verdict whole = parse(bytes, bytes.size());
  for (size_t cut : {size_t{0}, size_t{1}, size / 2, size / 3}) {
    const Verdict cut_up = parse(bytes, cut);
    require(cut_up.accepted == whole.accepted);
    require(cut_up.request.body == whole.request.body);
    if (!whole.accepted) continue;
    require(cut_up.consumed == whole.consumed);
    require(cut_up.request.target == whole.request.target);
  }
  if (whole.accepted) compare(bytes, whole);
  return 0;
}
