// What a checkpoint must hold: a table from tensor names to shapes. Anything missing, extra or misshaped is an error
// that names the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/checkpoint.h"

namespace baton::models {

class TensorTable {
 public:
  void require(std::string name, std::vector<int64_t> shape) { shapes_[std::move(name)] = std::move(shape); }
  // A vector that some checkpoints pad at its end, and some write with dimensions of one around it.
  void require_padded(std::string name, int64_t size) { padded_[std::move(name)] = size; }
  // A weight matrix [out, in], under the name that it has where it is plain ("....weight").
  void require_matrix(std::string name, std::vector<int64_t> shape) { require(std::move(name), std::move(shape)); }
  // Tensors that may be there and are not used. `*` stands for any run of characters.
  void ignore(std::string pattern) { ignored_.push_back(std::move(pattern)); }

  // kDataLoss listing up to a few of the tensors that are wrong.
  Result<void> check(const weights::Checkpoint& checkpoint) const;

 private:
  bool is_ignored(std::string_view name) const;

  std::map<std::string, std::vector<int64_t>, std::less<>> shapes_;
  std::map<std::string, int64_t, std::less<>> padded_;
  std::vector<std::string> ignored_;
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[576, 1536]"

}  // namespace baton::models
