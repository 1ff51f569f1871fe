// Matrices of every published form reach the kernels whole, and a checkpoint that is wrong is named at load.
#include "models/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "models/tensor_table.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_writer.h"

namespace baton::models {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kGoldens = BATON_SOURCE_DIR "/src/weights/testdata/weight_forms/";
const std::string kMxfp4 = "language_model.model.layers.1.block_sparse_moe.experts.0.w1";
const std::string kLayer = "model.layers.0.";

struct Form {
  std::string folder, name;
  DType dtype;
};
const Form kForms[] = {
    {"int4", "language_model.model.layers.1.mlp.experts.0.gate_proj.weight", DType::kInt4Group32},
    {"mxfp4", kMxfp4 + ".weight", DType::kMxfp4},
    {"fp8", "model.layers.0.self_attn.q_a_proj.weight", DType::kFp8Block},
    {"modelslim", kLayer + "self_attn.q_a_proj.weight", DType::kInt8Channel},
    {"modelslim", kLayer + "mlp.gate_proj.weight", DType::kInt8Static},
    {"modelslim", kLayer + "mlp.experts.1.gate_proj.weight", DType::kInt4Channel},
    {"modelslim", kLayer + "self_attn.o_proj.weight", DType::kMxfp8},
    {"modelslim", kLayer + "self_attn.kv_b_proj.weight", DType::kBF16},
};

TEST(WeightLoader, EveryFormIsPackedAndDequantisedAlike) {
  ComputePool pool({.threads = 2, .spin_us = 0});
  const LoadOptions options;
  for (const Form& form : kForms) {
    const auto checkpoint = *weights::open_checkpoint(kGoldens + form.folder);
    WeightLoader loader(*checkpoint, options, pool);
    const auto packed = loader.matrix(form.name);
    ASSERT_TRUE(packed.has_value()) << packed.error().to_string();
    EXPECT_EQ(packed->spec().dtype, form.dtype) << form.name;
    const int64_t rows = packed->spec().out_features;
    const auto columns = static_cast<size_t>(packed->spec().in_features);
    EXPECT_EQ(*loader.matrix_shape(form.name), std::pair(rows, packed->spec().in_features));
    const auto dense = loader.dense_rows(form.name, 0, rows);
    ASSERT_TRUE(dense.has_value()) << dense.error().to_string();
    std::vector<float> row(columns);
    for (int64_t r = 0; r < rows; ++r) {
      kernels::unpack_row(*packed, r, row.data());
      for (size_t k = 0; k < columns; ++k) {
        const float expected = (*dense)[static_cast<size_t>(r) * columns + k];
        ASSERT_NEAR(row[k], expected, std::abs(expected) * 1e-6f) << form.name << " row " << r << " input " << k;
      }
    }
  }
}

TEST(WeightLoader, SomeRowsAreThoseOfTheWhole) {
  ComputePool pool({.threads = 1});
  const LoadOptions options;
  for (const Form& form : kForms) {
    const auto checkpoint = *weights::open_checkpoint(kGoldens + form.folder);
    WeightLoader loader(*checkpoint, options, pool);
    const auto part = loader.matrix_rows(form.name, 1, 2);
    ASSERT_TRUE(part.has_value()) << part.error().to_string();
    const auto whole = *loader.matrix(form.name);
    const auto columns = static_cast<size_t>(whole.spec().in_features);
    std::vector<float> a(columns), b(columns);
    for (int64_t row = 0; row < 2; ++row) {
      kernels::unpack_row(*part, row, a.data());
      kernels::unpack_row(whole, row + 1, b.data());
      EXPECT_EQ(a, b) << form.name;
    }
    EXPECT_THAT(loader.dense_rows(form.name, 1, whole.spec().out_features).error().message(),
                AllOf(HasSubstr("model.safetensors: tensor " + form.name), HasSubstr("rows, not rows 1 to")));
  }
}

TEST(WeightLoader, PiecesCountOnceInProgress) {
  ComputePool pool({.threads = 1});
  int64_t done = 0, total = 0;
  LoadOptions options;
  options.progress = [&](int64_t now, int64_t all) {
    done = now;
    total = all;
  };
  const auto checkpoint = *weights::open_checkpoint(kGoldens + "fp8");
  const std::string name = "model.layers.0.self_attn.q_a_proj.weight";
  WeightLoader loader(*checkpoint, options, pool);
  ASSERT_TRUE(loader.dense_rows(name, 0, 64));
  ASSERT_TRUE(loader.matrix_rows(name, 64, 66));
  EXPECT_EQ(done, 130 * 256 + 4 * 4);
  EXPECT_GT(total, done);
}

// A folder of the mxfp4 golden's tensors, changed.
class Changed {
 public:
  explicit Changed(const std::function<void(std::vector<weights::TensorSource>&)>& change) {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_loader_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    const auto golden = *weights::open_checkpoint(kGoldens + "mxfp4");
    std::vector<weights::TensorSource> tensors;
    for (const char* suffix : {".weight_packed", ".weight_scale"}) {
      const auto& entry = golden->tensors().at(kMxfp4 + suffix);
      tensors.push_back({entry.name, entry.dtype, entry.shape, {entry.data, static_cast<size_t>(entry.bytes)}});
    }
    change(tensors);
    std::ofstream(folder_ + "/config.json") << golden->config().dump();
    written_ = weights::write_safetensors(folder_ + "/model.safetensors", tensors);
  }
  ~Changed() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

  std::unique_ptr<weights::Checkpoint> open() const {
    EXPECT_TRUE(written_.has_value());
    return *weights::open_checkpoint(folder_);
  }

 private:
  std::string folder_;
  Result<void> written_;
};

TEST(WeightLoader, ANanScaleEndsTheLoadWithFileTensorAndRow) {
  const std::vector<uint8_t> scales = [] {
    std::vector<uint8_t> values(24, 127);
    values[5 * 3 + 2] = 255;
    return values;
  }();
  const Changed folder([&](auto& tensors) { tensors[1].data = std::as_bytes(std::span(scales)); });
  ComputePool pool({.threads = 1});
  const LoadOptions options;
  const auto checkpoint = folder.open();
  WeightLoader loader(*checkpoint, options, pool);
  const auto packed = loader.matrix(kMxfp4 + ".weight");
  ASSERT_FALSE(packed.has_value());
  EXPECT_EQ(packed.error().code(), Code::kDataLoss);
  EXPECT_THAT(packed.error().message(),
              AllOf(HasSubstr("model.safetensors: tensor " + kMxfp4 + ".weight with " + kMxfp4 + ".weight_scale"),
                    HasSubstr("5")));
}

// Where results only choose, a NaN would change the answer and never show.
TEST(WeightLoader, AValueThatIsNoNumberIsNamedWhereItWouldPassUnseen) {
  std::vector<float> values(40 * 32, 0.5f);
  values[39 * 32 + 7] = std::nanf("");
  std::vector<float> infinite{1, 2, HUGE_VALF};
  const Changed folder([&](auto& tensors) {
    tensors.push_back({"gate.weight", tensor::DType::kF32, {40, 32}, std::as_bytes(std::span(values))});
    tensors.push_back({"bias", tensor::DType::kF32, {3}, std::as_bytes(std::span(infinite))});
  });
  ComputePool pool({.threads = 1});
  const LoadOptions options;
  const auto checkpoint = folder.open();
  WeightLoader loader(*checkpoint, options, pool);
  const auto named = AllOf(HasSubstr("model.safetensors: tensor gate.weight: element 1255 is nan"));
  EXPECT_THAT(loader.finite_matrix_rows("gate.weight", 20, 20).error().message(), named);
  EXPECT_THAT(loader.float_matrix_rows("gate.weight", 20, 20).error().message(), named);
  EXPECT_THAT(loader.vector("bias").error().message(), HasSubstr("tensor bias: element 2 is inf"));
  values[39 * 32 + 7] = 0;
  const Changed sound([&](auto& tensors) {
    tensors.push_back({"gate.weight", tensor::DType::kF32, {40, 32}, std::as_bytes(std::span(values))});
  });
  const auto opened = sound.open();
  WeightLoader again(*opened, options, pool);
  EXPECT_TRUE(again.finite_matrix_rows("gate.weight", 0, 40).has_value());
}

TEST(TensorTable, AMatrixMayHaveAnyFormAndItsPartsBelongToIt) {
  const auto outcome = [](const std::function<void(std::vector<weights::TensorSource>&)>& change, int64_t columns) {
    const Changed folder(change);
    TensorTable table;
    table.require(kMxfp4 + ".weight", {8, columns});
    const auto checked = table.check(*folder.open());
    return checked ? std::string("fine") : checked.error().message();
  };
  EXPECT_EQ(outcome([](auto&) {}, 96), "fine");
  EXPECT_THAT(outcome([](auto&) {}, 97),
              HasSubstr(kMxfp4 + ".weight has shape [8, 96], the configuration asks for [8, 97]"));
  const auto missing = outcome([](auto& tensors) { tensors.pop_back(); }, 96);
  EXPECT_THAT(missing, AllOf(HasSubstr("1 tensor is wrong"), HasSubstr(kMxfp4 + ".weight_scale is missing")));
  EXPECT_THAT(outcome([](auto& tensors) { tensors.erase(tensors.begin()); }, 96),
              AllOf(HasSubstr("1 tensor is wrong"), HasSubstr(kMxfp4 + ".weight [8, 96] is missing")));
  EXPECT_THAT(outcome(
                  [](auto& tensors) {
                    tensors.push_back(tensors.back());
                    tensors.back().name = kMxfp4 + ".weight_scale_2";
                  },
                  96),
              HasSubstr(".weight_scale_2 [8, 3] is not a tensor of this architecture"));
}

TEST(TensorTable, AscendWithoutItsFileIsRefused) {
  const auto checkpoint = *weights::open_checkpoint(kGoldens + "mxfp4");
  const auto checked = TensorTable().check(*checkpoint, "ascend");
  ASSERT_FALSE(checked.has_value());
  EXPECT_THAT(checked.error().message(), HasSubstr("mxfp4/quant_model_description.json is missing"));
}

}  // namespace
}  // namespace baton::models
