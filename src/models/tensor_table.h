// What a checkpoint must hold: a table from tensor names to shapes. Anything missing, extra or misshaped is an error
// that names the tensor. A matrix ("....weight", two dimensions) may have any of the forms of weights/weight_formats.h;
// its scales and other parts belong to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/weight_formats.h"

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

  // kDataLoss listing up to a few of the tensors that are wrong; the errors of WeightFormats::open. quantization: as
  // there.
  Result<void> check(const weights::Checkpoint& checkpoint, std::string_view quantization = "") const;

 private:
  struct Findings;
  void check_tensor(const weights::Checkpoint& checkpoint, const std::string& name, const std::vector<int64_t>& shape,
                    Findings& findings) const;
  void check_matrix(const weights::Checkpoint& checkpoint, const weights::WeightFormats& formats,
                    const std::string& name, const std::vector<int64_t>& shape, Findings& findings) const;
  bool is_ignored(std::string_view name) const;

  std::map<std::string, std::vector<int64_t>, std::less<>> shapes_;
  std::map<std::string, int64_t, std::less<>> padded_;
  std::vector<std::string> ignored_;
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[576, 1536]"

}  // namespace baton::models
