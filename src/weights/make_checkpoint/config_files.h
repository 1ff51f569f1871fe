// config.json of a random checkpoint: the keys that the published one has.
#pragma once

#include <nlohmann/json.hpp>

#include "tensor/dtype.h"
#include "weights/make_checkpoint/checkpoint_sizes.h"

namespace baton::weights {

nlohmann::ordered_json random_config_json(CheckpointArch arch, const CheckpointSizes& sizes, tensor::DType dtype);

}  // namespace baton::weights
