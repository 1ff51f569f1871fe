#include "base/status.h"

namespace baton {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "already_exists";
    case Code::kFailedPrecondition:
      return "failed_precondition";
    case Code::kOutOfRange:
      return "out_of_range";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kUnauthenticated:
      return "unauthenticated";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kMismatch:
      return "mismatch";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace baton
