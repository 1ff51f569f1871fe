#include "weights/quantize/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "weights/json_parse.h"
#include "weights/output_file.h"
#include "weights/printable.h"
#include "weights/quantize/output_folder.h"
#include "weights/quantize/shard_quantizer.h"
#include "weights/shard_file.h"
#include "weights/weight_formats.h"

namespace baton::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Result<void> check_input(const Checkpoint& checkpoint) {
  if (checkpoint.format() != Checkpoint::Format::kHuggingFace) {
    return fail(Code::kInvalidArgument, "{} is a GGUF file; a folder with config.json and safetensors can be quantised",
                checkpoint.path());
  }
  std::error_code error;
  if (fs::exists(fs::path(checkpoint.path()) / kDescriptionName, error)) {
    return fail(Code::kInvalidArgument, "{} has a {}: it is quantised already", checkpoint.path(), kDescriptionName);
  }
  BATON_TRY_ASSIGN(const QuantMethod method,
                   read_quantization_config(checkpoint.config(), checkpoint.path() + "/config.json"));
  if (method == QuantMethod::kNone) return {};
  return fail(Code::kInvalidArgument, "{} is quantised already: config.json says {}", checkpoint.path(),
              quant_method_text(method));
}

// The input's tensors in the order in which its files hold them, each with its form.
Result<std::vector<QuantizedTensor>> plan(const Checkpoint& checkpoint, const ModelTraits& traits,
                                          const QuantizeOptions& options, QuantizeReport& report) {
  std::vector<QuantizedTensor> tensors;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    QuantizedTensor tensor{.entry = &entry, .form = form_of(options.scheme, traits, entry)};
    if (tensor.form != MatrixForm::kKeep) {
      const std::string refusal = form_refusal(tensor.form, entry.shape[0], entry.shape[1]);
      if (!refusal.empty()) {
        if (report.unfit++ == 0) report.unfit_example = fmt::format("{}: {}", printable(name), refusal);
        tensor.form = MatrixForm::kKeep;
      }
    }
    BATON_TRY(describe(options, tensor));
    ++(tensor.form == MatrixForm::kKeep ? report.kept : report.quantised);
    tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(tensors, {}, [](const QuantizedTensor& tensor) {
    return std::tuple(tensor.entry->file_index, tensor.entry->file_offset, std::string_view(tensor.entry->name));
  });
  if (report.quantised > 0) return tensors;
  return fail(Code::kInvalidArgument, "{} has no matrix that {} would quantise{}{}", checkpoint.path(),
              quant_scheme_name(options.scheme), report.unfit > 0 ? "; the first that doesn't fit: " : "",
              report.unfit_example);
}

// Whole tensors of the input go to one file each: a matrix and its scales stay together.
Result<std::vector<Shard>> plan_output(const std::vector<QuantizedTensor>& tensors, int64_t shard_bytes,
                                       std::vector<TensorDecl>& decls, std::vector<size_t>& first_decl) {
  for (const auto& tensor : tensors) {
    first_decl.push_back(decls.size());
    for (const auto& part : tensor.parts) decls.push_back(part.decl);
  }
  first_decl.push_back(decls.size());
  return split_into_shards(decls, shard_bytes, first_decl);
}

json description(const std::vector<QuantizedTensor>& tensors, QuantScheme scheme) {
  json out = {{"model_quant_type", nullptr}, {"version", "1.0.0"}, {"group_size", 0}};
  for (const auto& tensor : tensors) {
    const std::string type(modelslim_type_name(tensor.form));
    for (const auto& part : tensor.parts) out[part.decl.name] = type;
  }
  std::string name(quant_scheme_name(scheme));
  for (char& letter : name) letter = letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  out["model_quant_type"] = name;
  return out;
}

Result<void> finish(const Checkpoint& checkpoint, const OutputFolder& folder, const QuantizeOptions& options,
                    const ModelTraits& traits, const std::vector<QuantizedTensor>& tensors,
                    std::span<const TensorDecl> decls, std::span<const Shard> shards) {
  if (shards.size() > 1) {
    BATON_TRY(write_text_file(folder.file(kShardIndexName), shard_index_json(decls, shards)));
  }
  if (is_modelslim(options.scheme)) {
    BATON_TRY(write_text_file(folder.file(kDescriptionName), description(tensors, options.scheme).dump(1) + "\n"));
  }
  BATON_TRY(folder.copy_others(checkpoint.path()));
  BATON_TRY(write_text_file(folder.file("config.json"),
                            quantised_config(options.scheme, traits, checkpoint.config()).dump(2) + "\n"));
  return folder.finish();
}

}  // namespace

Result<QuantizeReport> quantize_checkpoint(const std::string& in, const std::string& out,
                                           const QuantizeOptions& options, ComputePool& pool) {
  if (options.shard_bytes < 1 || !(options.input_range > 0) || !std::isfinite(options.input_range)) {
    return fail(
        Code::kInvalidArgument,
        "shards of {} bytes, an input range of {}: a shard has a byte at least, and the range is a number above 0",
        options.shard_bytes, options.input_range);
  }
  BATON_TRY_ASSIGN(const auto checkpoint, open_checkpoint(in));
  BATON_TRY(check_input(*checkpoint));
  BATON_TRY_ASSIGN(const ModelTraits traits, read_model_traits(*checkpoint));
  QuantizeReport report;
  BATON_TRY_ASSIGN(const auto tensors, plan(*checkpoint, traits, options, report));
  std::vector<TensorDecl> decls;
  std::vector<size_t> first_decl;
  BATON_TRY_ASSIGN(const auto shards, plan_output(tensors, options.shard_bytes, decls, first_decl));
  for (const Shard& shard : shards) report.bytes += shard.layout.file_bytes;
  report.files = static_cast<int>(shards.size());

  BATON_TRY_ASSIGN(auto folder, OutputFolder::open(out, quantize_identity(*checkpoint, options), report.bytes));
  ShardQuantizer quantizer(*checkpoint, tensors, first_decl, options, report.bytes);
  for (const Shard& shard : shards) {
    BATON_TRY_ASSIGN(const bool stands, folder.stands(shard));
    if (stands) {
      ++report.files_resumed;
      quantizer.skip(shard);
      continue;
    }
    BATON_TRY(quantizer.write(folder.file(shard.file_name), shard, pool));
  }
  BATON_TRY(finish(*checkpoint, folder, options, traits, tensors, decls, shards));
  return report;
}

Result<std::map<std::string, InputQuant>> read_input_scales(const std::string& path) {
  BATON_TRY_ASSIGN(const json root, read_json_object(path));
  std::map<std::string, InputQuant> inputs;
  for (const auto& [name, value] : root.items()) {
    const json& scale = value.is_object() && value.contains("scale") ? value["scale"] : value;
    const json offset = value.is_object() && value.contains("offset") ? value["offset"] : json(0);
    const bool sound = scale.is_number() && std::isfinite(scale.get<float>()) && scale.get<float>() > 0 &&
                       offset.is_number_integer() && offset.get<int64_t>() >= -128 && offset.get<int64_t>() <= 127;
    if (!sound) {
      return fail(Code::kDataLoss, "{}: {} must be a scale above 0, or an object with scale and an int8 offset", path,
                  printable(name));
    }
    inputs[name] = {scale.get<float>(), offset.get<int>()};
  }
  return inputs;
}

}  // namespace baton::weights
