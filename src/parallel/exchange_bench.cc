// What a row-parallel product costs in exchange, two ways, over the ranks of one process:
//   outputs  every rank writes its inputs' columns into shared memory, waits, multiplies its outputs' columns by all
//            inputs, writes them into shared memory, waits: two gathers of K and N floats a row
//   sums     every rank writes N partial sums a row, waits, adds its columns of all ranks' sums by a binary tree,
//            writes them, waits
// Only the exchange is timed, not the product; memory copies beside it are the floor of either.
//   exchange_bench [RANKS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/check.h"
#include "parallel/grid.h"
#include "parallel/group.h"

namespace baton::parallel {
namespace {

struct Shape {
  const char* name;
  int64_t inputs, outputs;
};
constexpr Shape kShapes[] = {{"o_proj, Kimi K3", 12288, 7168}, {"down_proj, DeepSeek V3 dense", 18432, 7168}};

void write_columns(float* to, int64_t stride, int64_t rows, Share columns, float value) {
  for (int64_t r = 0; r < rows; ++r) std::fill(to + r * stride + columns.begin, to + r * stride + columns.end, value);
}

void by_outputs(Group& group, const Shape& shape, int64_t rows, float* in, float* out) {
  write_columns(in, shape.inputs, rows, share_of(shape.inputs, group.size(), group.rank(), 16), 1);
  group.barrier();
  write_columns(out, shape.outputs, rows, share_of(shape.outputs, group.size(), group.rank(), 16), 2);
  group.barrier();
}

void by_sums(Group& group, const Shape& shape, int64_t rows, float* partial, float* out) {
  const int64_t plane = rows * shape.outputs;
  write_columns(partial + group.rank() * plane, shape.outputs, rows, {0, shape.outputs}, 1);
  group.barrier();
  const Share columns = share_of(shape.outputs, group.size(), group.rank(), 16);
  for (int64_t r = 0; r < rows; ++r) {
    for (int step = 1; step < group.size(); step *= 2) {
      for (int i = 0; i + step < group.size(); i += 2 * step) {
        float* left = partial + i * plane + r * shape.outputs;
        const float* right = left + step * plane;
        for (int64_t c = columns.begin; c < columns.end; ++c) left[c] += right[c];
      }
    }
    std::copy(partial + r * shape.outputs + columns.begin, partial + r * shape.outputs + columns.end,
              out + r * shape.outputs + columns.begin);
  }
  group.barrier();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void measure(int ranks, const Shape& shape, int64_t rows) {
  constexpr int kRounds = 31;
  Team team(ranks, 50);
  std::vector<double> outputs, sums;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        Group group(team, rank);
        auto in = group.share(static_cast<size_t>(rows * shape.inputs) * sizeof(float));
        auto out = group.share(static_cast<size_t>(rows * shape.outputs) * sizeof(float));
        auto partial = group.share(static_cast<size_t>(ranks * rows * shape.outputs) * sizeof(float));
        BATON_CHECK(in && out && partial);
        const auto timed = [&](std::vector<double>& times, auto&& body) {
          group.barrier();
          const auto begin = std::chrono::steady_clock::now();
          body();
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          if (rank == 0) times.push_back(took.count());
        };
        for (int round = 0; round < kRounds; ++round) {  // the two in turn
          timed(outputs, [&] { by_outputs(group, shape, rows, (*in)->as<float>(), (*out)->as<float>()); });
          timed(sums, [&] { by_sums(group, shape, rows, (*partial)->as<float>(), (*out)->as<float>()); });
        }
      });
    }
  }
  fmt::print("{:<30} {:>2} ranks {:>4} rows   outputs {:>9.1f} us   sums {:>9.1f} us   {:>5.2f} x\n", shape.name, ranks,
             rows, median(outputs) * 1e6, median(sums) * 1e6, median(sums) / median(outputs));
}

}  // namespace
}  // namespace baton::parallel

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  for (const auto& shape : baton::parallel::kShapes) {
    for (const int64_t rows : {1, 8, 512}) baton::parallel::measure(std::clamp(ranks, 1, 64), shape, rows);
  }
}
