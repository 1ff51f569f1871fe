#include "kernels/matmul_onednn.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "tensor/float_convert.h"

// libgomp's; its header is not on clang's path.
extern "C" void omp_set_num_threads(int count);

namespace baton::kernels {
namespace {

using dnnl::memory;

// What a thread needs to run one shape. The memory objects hold no data of their own.
struct Product {
  dnnl::matmul primitive;
  memory a, b, c;
};

// One thread's oneDNN state.
class ThreadContext {
 public:
  ThreadContext() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  // Null when the shape is not served by a brgemm kernel.
  Product* find(int64_t in_features, int64_t columns) {
    auto& slot = products_[in_features * (kOnednnColumns / 64 + 1) + columns / 64];
    if (!slot.has_value()) slot = make(in_features, columns);
    return slot->primitive ? &*slot : nullptr;
  }

  void run(Product& product, const uint16_t* a, const std::byte* b, float* c) {
    product.a.set_data_handle(const_cast<uint16_t*>(a));
    product.b.set_data_handle(const_cast<std::byte*>(b));
    product.c.set_data_handle(c);
    product.primitive.execute(stream_,
                              {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
    stream_.wait();
  }

 private:
  Product make(int64_t in_features, int64_t columns) {
    const memory::desc a({kOnednnRows, in_features}, memory::data_type::bf16, memory::format_tag::ab);
    const memory::desc b({in_features, columns}, memory::data_type::bf16, memory::format_tag::BA16a64b2a);
    const memory::desc c({kOnednnRows, columns}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), engine_, /*allow_empty=*/true);
    if (!description || std::string_view(description.impl_info_str()) != "brg:avx512_core_bf16") return {};
    return {dnnl::matmul(description), memory(a, engine_, nullptr), memory(b, engine_, nullptr),
            memory(c, engine_, nullptr)};
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<int64_t, std::optional<Product>> products_;
};

// Null when oneDNN can't start. Per thread: primitives are not shared, and OpenMP's count belongs to a thread.
ThreadContext* thread_context() {
  thread_local std::optional<ThreadContext> context;
  if (!context.has_value()) {
    omp_set_num_threads(1);
    context.emplace();
  }
  return &*context;
}

// Fills with bf16 numbers between 1 and 2 in size, of both signs: sums cancel, so any other order shows.
void fill_bf16(std::vector<uint16_t>& values) {
  uint32_t state = 1;
  for (auto& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(0x3f80u | (state >> 16 & 0x807fu));
  }
}

// One product of the widest call, by oneDNN and by our own kernel.
bool trial_agrees(int64_t in_features) {
  std::vector<uint16_t> weights(static_cast<size_t>(kOnednnColumns * in_features));
  std::vector<uint16_t> inputs(static_cast<size_t>(kOnednnRows * in_features));
  fill_bf16(weights);
  fill_bf16(inputs);
  std::vector<float> x(inputs.size());
  std::transform(inputs.begin(), inputs.end(), x.begin(), tensor::bf16_to_float);
  auto matrix = PackedMatrix::reserve({.out_features = kOnednnColumns,
                                       .in_features = in_features,
                                       .dtype = tensor::DType::kBF16,
                                       .isa = tensor::Isa::kAvx512,
                                       .allow_onednn = false});
  auto activations = ActivationBuffer::allocate(kOnednnRows, in_features);
  if (!matrix.has_value() || !activations.has_value()) return false;
  ComputePool pool({.threads = 1});
  matrix->pack_rows(0, kOnednnColumns, reinterpret_cast<const std::byte*>(weights.data()));
  activations->quantize(x.data(), in_features, kOnednnRows, in_features, ActivationFormat::kBF16, tensor::Isa::kAvx512,
                        pool);
  std::vector<float> ours(kOnednnRows * kOnednnColumns);
  std::vector<float> theirs(ours.size());
  matmul(*matrix, *activations, nullptr, ours.data(), kOnednnColumns, pool);
  for (int64_t columns = 64; columns <= kOnednnColumns; columns += 64) {
    if (!onednn_multiply(inputs.data(), matrix->data(), in_features, columns, theirs.data())) return false;
    for (int64_t r = 0; r < kOnednnRows; ++r) {
      if (std::memcmp(&ours[r * kOnednnColumns], &theirs[r * columns], columns * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

}  // namespace

std::string onednn_version() {
  const auto& version = *dnnl::version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

bool onednn_can_serve(const MatmulSpec& spec) {
  if (!spec.allow_onednn || spec.dtype != tensor::DType::kBF16 || spec.isa != tensor::Isa::kAvx512 ||
      spec.k_order != KOrder::kSequential || spec.in_features % 32 != 0) {
    return false;
  }
  // Each thread that loads weights tries each K once.
  thread_local std::unordered_map<int64_t, bool> tried;
  const auto [entry, is_new] = tried.try_emplace(spec.in_features, false);
  if (is_new) {
    entry->second = trial_agrees(spec.in_features);
    if (!entry->second) {
      log_warning("event=onednn_refused in_features={} reason=\"not the bits of our own bf16 kernel\"",
                  spec.in_features);
    }
  }
  return entry->second;
}

bool onednn_multiply(const uint16_t* a, const std::byte* block, int64_t in_features, int64_t columns, float* c) {
  try {
    ThreadContext* context = thread_context();
    Product* product = context->find(in_features, columns);
    if (product == nullptr) return false;
    context->run(*product, a, block, c);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace baton::kernels
