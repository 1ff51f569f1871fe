// Many products in one pass over the threads: experts over sorted tokens, one matrix per head, matrices that share
// their input.
//
// A tile step of a product costs about as many units as it has blocks of kTileRows rows (one row costs like four: the
// weights' bytes). The units of all products stand in one line that parallel_for cuts evenly; a step belongs to the
// thread in whose range its first unit lies. No list is built: each thread walks the products, which are few.
#include <algorithm>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/matmul_product.h"
#include "kernels/matmul_tile.h"
#include "kernels/matmul_together.h"

namespace baton::kernels {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

struct Steps {
  int64_t count = 0;  // tile steps
  int64_t units = 0;  // of each
};
Steps steps_of(const MatmulProduct& p) {
  return {divide_up(p.w->layout().panels, panels_per_tile(p.w->spec().dtype)), divide_up(p.row_count, kTileRows)};
}

// The steps of the products whose first unit is in [begin, end). product_of(i) makes product i of `count`.
template <typename ProductOf>
void multiply_units(int64_t count, const ProductOf& product_of, int64_t begin, int64_t end) {
  int64_t first_unit = 0;
  for (int64_t i = 0; i < count && first_unit < end; ++i) {
    const MatmulProduct product = product_of(i);
    const auto [steps, units] = steps_of(product);
    const int64_t next_unit = first_unit + steps * units;
    if (units > 0 && next_unit > begin) {
      const int64_t from = divide_up(std::max<int64_t>(begin - first_unit, 0), units);
      const int64_t to = std::min(steps, divide_up(end - first_unit, units));
      const int64_t width = panels_per_tile(product.w->spec().dtype);
      if (from < to) multiply_panels(product, from * width, std::min(to * width, product.w->layout().panels));
    }
    first_unit = next_unit;
  }
}

template <typename ProductOf>
void multiply_products(int64_t count, const ProductOf& product_of, ComputePool& pool) {
  int64_t units = 0;
  for (int64_t i = 0; i < count; ++i) {
    const MatmulProduct product = product_of(i);
    check_product(product);
    const Steps steps = steps_of(product);
    units += steps.count * steps.units;
  }
  struct Job {
    int64_t count;
    const ProductOf& product_of;
  };
  const Job job{count, product_of};
  pool.parallel_for(units, 1,
                    [&job](int64_t begin, int64_t end) { multiply_units(job.count, job.product_of, begin, end); });
}

void check_same_kind(const PackedMatrix& first, const PackedMatrix& other) {
  const MatmulSpec &a = first.spec(), &b = other.spec();
  BATON_CHECK(a.dtype == b.dtype && a.out_features == b.out_features && a.in_features == b.in_features,
              "matrices of several kinds: {} {} x {} and {} {} x {}", tensor::dtype_name(a.dtype), a.out_features,
              a.in_features, tensor::dtype_name(b.dtype), b.out_features, b.in_features);
}

}  // namespace

void matmul_together(std::span<const MatmulPart> parts, const ActivationBuffer& x, ComputePool& pool) {
  const auto product_of = [&](int64_t i) {
    const MatmulPart& part = parts[static_cast<size_t>(i)];
    return MatmulProduct{
        .w = part.w, .x = &x, .row_count = x.rows(), .bias = part.bias, .y = part.y, .y_stride = part.y_stride};
  };
  multiply_products(std::ssize(parts), product_of, pool);
}

void matmul_groups(std::span<const MatmulGroup> groups, const ActivationBuffer& x, float* y, int64_t y_stride,
                   ComputePool& pool) {
  for (const MatmulGroup& group : groups) check_same_kind(*groups[0].w, *group.w);
  const auto product_of = [&](int64_t i) {
    const MatmulGroup& group = groups[static_cast<size_t>(i)];
    return MatmulProduct{.w = group.w,
                         .x = &x,
                         .row_begin = group.row_begin,
                         .row_count = group.row_count,
                         .y = y + group.row_begin * y_stride,
                         .y_stride = y_stride};
  };
  multiply_products(std::ssize(groups), product_of, pool);
}

void matmul_heads(std::span<const PackedMatrix> w, const float* x, int64_t x_stride, int64_t rows, float* y,
                  int64_t y_stride, ActivationBuffer& scratch, ComputePool& pool) {
  if (w.empty() || rows == 0) return;
  for (const PackedMatrix& head : w) check_same_kind(w[0], head);
  const MatmulSpec& spec = w[0].spec();
  const int64_t heads = std::ssize(w);
  BATON_CHECK(spec.dtype != tensor::DType::kInt8Static, "each head would need its own quantised inputs");
  BATON_CHECK(y_stride >= heads * spec.out_features, "y stride {} below {} heads of {}", y_stride, heads,
              spec.out_features);
  scratch.quantize_heads(x, x_stride, rows, heads, spec.in_features, activation_format(spec.dtype), spec.isa, pool);
  const auto product_of = [&](int64_t h) {
    return MatmulProduct{.w = &w[static_cast<size_t>(h)],
                         .x = &scratch,
                         .row_begin = h * rows,
                         .row_count = rows,
                         .y = y + h * spec.out_features,
                         .y_stride = y_stride};
  };
  multiply_products(heads, product_of, pool);
}

}  // namespace baton::kernels
