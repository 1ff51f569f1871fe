#include "weights/make_checkpoint/make_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>

#include "tensor/float_convert.h"
#include "weights/make_checkpoint/config_files.h"
#include "weights/make_checkpoint/tensor_plan.h"
#include "weights/output_file.h"
#include "weights/random_values.h"
#include "weights/shard_file.h"
#include "weights/small_tokenizer.h"

namespace baton::weights {
namespace {

namespace fs = std::filesystem;
using tensor::DType;

constexpr int64_t kPieceElements = int64_t{1} << 18;

int64_t element_count(const PlannedTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

// Elements [begin, begin + out.size()) of a tensor.
template <typename T, typename Convert>
void draw(const PlannedTensor& tensor, uint64_t key, int64_t begin, int64_t count, std::byte* out, Convert convert) {
  T* values = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = convert(tensor.mean + tensor.deviation * random_normal(key, static_cast<uint64_t>(begin + i)));
  }
}

void draw_piece(const PlannedTensor& tensor, uint64_t key, int64_t begin, int64_t count, std::byte* out) {
  if (tensor.dtype == DType::kBF16) return draw<uint16_t>(tensor, key, begin, count, out, tensor::float_to_bf16);
  if (tensor.dtype == DType::kF16) return draw<uint16_t>(tensor, key, begin, count, out, tensor::float_to_f16);
  draw<float>(tensor, key, begin, count, out, [](float value) { return value; });
}

struct Piece {
  size_t tensor;
  int64_t begin, count;
};

class ShardFiller {
 public:
  ShardFiller(const std::vector<PlannedTensor>& tensors, const MakeCheckpointOptions& options, int64_t bytes_total)
      : tensors_(tensors), options_(options), bytes_total_(bytes_total) {}

  Result<void> fill(const std::string& folder, const Shard& shard, ComputePool& pool) {
    BATON_TRY_ASSIGN(auto file, ShardFile::create((fs::path(folder) / shard.file_name).string(), shard.layout.header,
                                                  shard.layout.file_bytes));
    const auto pieces = split(shard);
    std::atomic<size_t> next{0};
    pool.run([&](int thread_index) {
      std::vector<std::byte> buffer(kPieceElements * sizeof(float));
      for (size_t i = next++; i < pieces.size() && !failed_; i = next++) {
        write(file, shard, pieces[i], buffer);
        if (thread_index == 0 && options_.progress) options_.progress(bytes_done_, bytes_total_);
      }
    });
    if (error_) return fail(*error_);
    return file.commit();
  }

 private:
  std::vector<Piece> split(const Shard& shard) const {
    std::vector<Piece> pieces;
    for (size_t i = shard.begin; i < shard.end; ++i) {
      const int64_t count = element_count(tensors_[i]);
      for (int64_t begin = 0; begin < count; begin += kPieceElements) {
        pieces.push_back({i, begin, std::min(kPieceElements, count - begin)});
      }
    }
    return pieces;
  }

  void write(const ShardFile& file, const Shard& shard, const Piece& piece, std::vector<std::byte>& buffer) {
    const PlannedTensor& tensor = tensors_[piece.tensor];
    draw_piece(tensor, random_tensor_key(tensor.name, options_.seed), piece.begin, piece.count, buffer.data());
    const int64_t width = tensor::dtype_info(tensor.dtype).block_bytes;
    const int64_t offset = shard.layout.offsets[piece.tensor - shard.begin] + piece.begin * width;
    const auto bytes = std::span(buffer).first(static_cast<size_t>(piece.count * width));
    if (auto written = file.write_at(offset, bytes); !written) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = written.error();
      failed_ = true;
    }
    bytes_done_ += piece.count * width;
  }

  const std::vector<PlannedTensor>& tensors_;
  const MakeCheckpointOptions& options_;
  const int64_t bytes_total_;
  std::atomic<int64_t> bytes_done_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::optional<Status> error_;
};

Result<void> check_options(const MakeCheckpointOptions& options) {
  if (options.dtype != DType::kF32 && options.dtype != DType::kF16 && options.dtype != DType::kBF16) {
    return fail(Code::kInvalidArgument, "random weights are f32, f16 or bf16, not {}; quantise them afterwards",
                tensor::dtype_name(options.dtype));
  }
  if (options.shard_bytes < 1) return fail(Code::kInvalidArgument, "a shard of {} bytes", options.shard_bytes);
  return check_sizes(options.arch, options.sizes);
}

Result<void> prepare_folder(const std::string& folder, int64_t bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(Code::kNotFound, "can't create folder {}: {}", folder, error.message());
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto name = it->path().filename().string();
    if (name == "config.json" || name.ends_with(".safetensors")) {
      return fail(Code::kAlreadyExists, "{} holds {} already; give a new folder", folder, name);
    }
  }
  const auto space = fs::space(folder, error);
  if (!error && static_cast<int64_t>(space.available) < bytes) {
    return fail(Code::kResourceExhausted, "{} bytes are needed in {}, where {} are free", bytes, folder,
                space.available);
  }
  return {};
}

Result<void> write_json(const std::string& folder, const char* name, const nlohmann::ordered_json& value) {
  return write_text_file((fs::path(folder) / name).string(), value.dump(2) + "\n");
}

}  // namespace

Result<MadeCheckpoint> make_checkpoint(const std::string& folder, const MakeCheckpointOptions& options,
                                       ComputePool& pool) {
  BATON_TRY(check_options(options));
  BATON_TRY_ASSIGN(const auto tokenizer, make_small_tokenizer(options.sizes.vocab));
  const auto tensors = plan_tensors(options.arch, options.sizes, options.dtype);
  std::vector<TensorDecl> decls;
  decls.reserve(tensors.size());
  for (const auto& tensor : tensors) decls.push_back({tensor.name, tensor.dtype, tensor.shape});
  BATON_TRY_ASSIGN(const auto shards, split_into_shards(decls, options.shard_bytes));

  MadeCheckpoint made{.tensors = std::ssize(tensors), .files = static_cast<int>(shards.size())};
  for (const Shard& shard : shards) made.bytes += shard.layout.file_bytes;
  BATON_TRY(prepare_folder(folder, made.bytes));
  ShardFiller filler(tensors, options, made.bytes);
  for (const Shard& shard : shards) BATON_TRY(filler.fill(folder, shard, pool));
  if (shards.size() > 1) {
    BATON_TRY(write_text_file((fs::path(folder) / kShardIndexName).string(), shard_index_json(decls, shards)));
  }
  BATON_TRY(write_json(folder, "generation_config.json",
                       {{"bos_token_id", SmallTokenizer::kBosId}, {"eos_token_id", SmallTokenizer::kEosId}}));
  BATON_TRY(write_json(folder, "tokenizer.json", tokenizer_json(tokenizer)));
  BATON_TRY(write_json(folder, "tokenizer_config.json", tokenizer_config_json(tokenizer)));
  BATON_TRY(write_json(folder, "config.json", random_config_json(options.arch, options.sizes, options.dtype)));
  return made;
}

}  // namespace baton::weights
