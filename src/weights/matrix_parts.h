// The tensors beside a matrix: found by suffix, checked for format and shape, with messages that name file and tensor.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/matrix_source.h"

namespace baton::weights {

// Whether the values of scales and offsets are read and checked, or their shapes alone.
enum class Values : uint8_t { kRead, kSkip };

class MatrixParts {
 public:
  // base: the matrix's name without ".weight".
  MatrixParts(const Checkpoint& checkpoint, std::string base, Values values)
      : checkpoint_(checkpoint), base_(std::move(base)), values_(values) {}
  bool skips_values() const { return values_ == Values::kSkip; }

  const std::string& base() const { return base_; }
  // "DIR/model-00001-of-00002.safetensors: tensor model.layers...."
  std::string where(const TensorEntry& tensor) const;
  // Null if there is none.
  const TensorEntry* find(std::string_view suffix) const;
  // kDataLoss if there is none, with what it is needed for.
  Result<const TensorEntry*> require(std::string_view suffix, std::string_view form) const;
  Result<void> expect_dtype(const TensorEntry& tensor, std::initializer_list<tensor::DType> dtypes) const;
  Result<void> expect_shape(const TensorEntry& tensor, const std::vector<int64_t>& shape) const;
  Result<void> expect_matrix(const TensorEntry& tensor) const;  // two dimensions, not empty
  // [rows] or [rows, 1] of floats, each a finite number. Empty where values are skipped.
  Result<std::vector<float>> column(const TensorEntry& tensor, int64_t rows) const;
  // One number, of any float or integer format.
  Result<float> scalar(const TensorEntry& tensor) const;

 private:
  const Checkpoint& checkpoint_;
  std::string base_;
  Values values_;
};

// From the bytes that the file has, so that no shape overflows it.
int64_t element_count(const TensorEntry& tensor);
// Element `index` of a tensor of plain numbers.
float tensor_value(const TensorEntry& tensor, int64_t index);

}  // namespace baton::weights
