#include "weights/quantize/shard_quantizer.h"

#include <algorithm>
#include <numeric>

#include "weights/dequantize.h"
#include "weights/printable.h"

namespace baton::weights {
namespace {

using tensor::DType;

constexpr int64_t kPieceElements = int64_t{1} << 19;
constexpr int64_t kPieceBytes = int64_t{1} << 22;

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

int64_t entry_bytes(const TensorDecl& decl) {
  const int64_t elements = std::accumulate(decl.shape.begin() + 1, decl.shape.end(), int64_t{1}, std::multiplies<>());
  return elements * tensor::dtype_info(decl.dtype).block_bytes;
}

}  // namespace

Result<void> describe(const QuantizeOptions& options, QuantizedTensor& tensor) {
  const TensorEntry& entry = *tensor.entry;
  if (tensor.form == MatrixForm::kKeep) {
    tensor.parts = {{.decl = {entry.name, entry.dtype, entry.shape}}};
    return {};
  }
  if (!is_float(entry.dtype)) {
    return fail(Code::kUnimplemented, "tensor {} is {}; f32, f16 and bf16 are quantised", printable(entry.name),
                tensor::dtype_name(entry.dtype));
  }
  const std::string base = entry.name.substr(0, entry.name.size() - std::string_view(".weight").size());
  for (auto& part : form_parts(tensor.form, entry.shape[0], entry.shape[1], splits_input(entry.name))) {
    tensor.parts.push_back({{base + part.suffix, part.dtype, std::move(part.shape)}, part.rows_per_entry});
  }
  if (tensor.form != MatrixForm::kW8A8) return {};
  tensor.input = {options.input_range / 127, 0};
  if (options.inputs.empty()) return {};
  const auto it = options.inputs.find(base);
  if (it == options.inputs.end()) {
    return fail(Code::kInvalidArgument, "no input scale is given for {}, which {} makes static", printable(base),
                quant_scheme_name(options.scheme));
  }
  tensor.input = it->second;
  return {};
}

std::vector<ShardQuantizer::Piece> ShardQuantizer::split(const Shard& shard) const {
  std::vector<Piece> pieces;
  const auto first = std::ranges::lower_bound(first_decl_, shard.begin) - first_decl_.begin();
  for (auto i = static_cast<size_t>(first); first_decl_[i] < shard.end; ++i) {
    const TensorEntry& entry = *tensors_[i].entry;
    const bool kept = tensors_[i].form == MatrixForm::kKeep;
    const int64_t count = kept ? entry.bytes : entry.shape[0];
    const int64_t wanted = kept ? kPieceBytes : kPieceElements / std::max<int64_t>(1, entry.shape[1]);
    const int64_t step = std::max(kFormRowGrain, wanted / kFormRowGrain * kFormRowGrain);
    for (int64_t begin = 0; begin < count; begin += step) {
      pieces.push_back({i, begin, std::min(step, count - begin)});
    }
  }
  return pieces;
}

Result<int64_t> ShardQuantizer::write_piece(const ShardFile& file, const Shard& shard, const Piece& piece) const {
  const QuantizedTensor& tensor = tensors_[piece.tensor];
  if (tensor.form != MatrixForm::kKeep) return write_rows(file, shard, piece);
  const int64_t place = shard.layout.offsets[first_decl_[piece.tensor] - shard.begin];
  const auto bytes = std::span(tensor.entry->data + piece.begin, static_cast<size_t>(piece.count));
  BATON_TRY(file.write_at(place + piece.begin, bytes));
  return piece.count;
}

Result<int64_t> ShardQuantizer::write_rows(const ShardFile& file, const Shard& shard, const Piece& piece) const {
  const QuantizedTensor& tensor = tensors_[piece.tensor];
  const TensorEntry& entry = *tensor.entry;
  const int64_t columns = entry.shape[1];
  std::vector<float> x(static_cast<size_t>(piece.count * columns));
  dequantize_row(entry.dtype, entry.data + piece.begin * tensor::dtype_bytes(entry.dtype, columns),
                 piece.count * columns, x.data());
  auto encoded = encode_rows(tensor.form, {.x = x.data(),
                                           .row_begin = piece.begin,
                                           .rows = piece.count,
                                           .columns = columns,
                                           .matrix_rows = entry.shape[0],
                                           .splits_input = splits_input(entry.name),
                                           .input = tensor.input});
  if (!encoded) {
    const auto where = fmt::format("{}: tensor {}", checkpoint_.file_path(entry), printable(entry.name));
    return fail(encoded.error().with_context(where));
  }
  int64_t written = 0;
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const auto& part = tensor.parts[i];
    if (part.rows_per_entry == 0 && piece.begin > 0) continue;
    int64_t place = shard.layout.offsets[first_decl_[piece.tensor] + i - shard.begin];
    if (part.rows_per_entry > 0) place += piece.begin / part.rows_per_entry * entry_bytes(part.decl);
    BATON_TRY(file.write_at(place, (*encoded)[i]));
    written += std::ssize((*encoded)[i]);
  }
  return written;
}

Result<void> ShardQuantizer::write(const std::string& path, const Shard& shard, ComputePool& pool) {
  BATON_TRY_ASSIGN(auto file, ShardFile::create(path, shard.layout.header, shard.layout.file_bytes));
  const auto pieces = split(shard);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<Status> error;
  std::atomic<bool> failed{false};
  pool.run([&](int thread_index) {
    for (size_t i = next++; i < pieces.size() && !failed; i = next++) {
      const auto written = write_piece(file, shard, pieces[i]);
      if (!written) {
        const std::lock_guard lock(mutex);
        if (!error) error = written.error();
        failed = true;
        continue;
      }
      bytes_done_ += *written;
      if (thread_index == 0 && options_.progress) options_.progress(bytes_done_, bytes_total_);
    }
  });
  if (error) return fail(*error);
  bytes_done_ += std::ssize(shard.layout.header);
  BATON_TRY(file.commit());
  if (options_.progress) options_.progress(bytes_done_, bytes_total_);
  const auto first = std::ranges::lower_bound(first_decl_, shard.begin) - first_decl_.begin();
  for (auto i = static_cast<size_t>(first); first_decl_[i] < shard.end; ++i) checkpoint_.release(*tensors_[i].entry);
  return {};
}

}  // namespace baton::weights
