// Writes the seed corpus of wire_fuzz: a frame of each message and the kv_transfer_params of each role.
//
//   wire_fuzz_seeds FOLDER
#include "base/fuzz_seed_files.h"
#include "wire/handoff_messages.h"
#include "wire/kv_transfer_params.h"

namespace baton::wire {
namespace {

EngineIdentity identity() {
  EngineIdentity id;
  id.software_version = "0.1";
  id.engine_id = "p";
  id.model_config = "L 1";
  id.quantisation = "bf16";
  id.model_fingerprint = "f00d";
  id.layout = {.block_size = 16,
               .context_size = 2,
               .grid = {.pp = 1, .pcp = 1, .tp = 2, .dcp = 2, .processes = 1},
               .entries = {{0, {.kind = "keys_values", .dtype = "bf16", .units = 2, .parts = 2, .token_bytes = 128}},
                           {1, {.kind = "latent", .dtype = "fp8", .token_bytes = 656}}},
               .states = {{0, {.kind = "state", .dtype = "f32", .units = 2, .token_bytes = 65536}}},
               .ranks = {{"pp0 pcp0 tp0", 0, {{0, 0, 2}, {1, 0, 1}}, {{0, 0, 1}}},
                         {"pp0 pcp0 tp1", 1, {{0, 0, 2}, {1, 0, 1}}, {{0, 1, 1}}}}};
  id.layer_names = {"a", "b"};
  id.profile = {.isa = "avx2", .kernel_revision = 1, .onednn_version = "2.6"};
  return id;
}

std::vector<Message> messages() {
  return {Hello{identity()},
          HelloReply{identity(), 10, 3, 30000, ShmLocation{"boot", 4, 5, {6, 7}, 8, 9}},
          HelloReply{identity(), 1, 0, 2, std::nullopt, {{"10.0.0.2", 36001}}},
          OfferQuery{1, 2},
          OfferReply{1, 2, 33, {4, 5, 6}, {7, 8, 9}},
          OfferReply{1, 2, 33, {4, 5, 6}, {7, 8, 9}, {10, 11}, 12, 14},
          Renew{1, {2, 3}},
          RenewReply{1, {3}},
          EndOffer{1, 2, true},
          EndReply{1, 2, true},
          ReadBlocks{1, 2, {{3, false, {{0, 2, 0, 1}, {2, 1, 0, 2}}}, {4, true, {{0, 1, 1, 1}}}}, {{0, 5}, {1, 0}}},
          BlockData{1, 2, 3, 4, 5, {6, 7, 0, 1}, true, {8, 9}},
          ErrorReply{1, 2, Code::kNotFound, "no such offer"},
          PushOpen{1, 4, 33, {2, 3}, true},
          PushOpenReply{1, 16, true},
          PushData{1, 2, false, {3, 1, 0, 2}, 4, 1, {8, 9}},
          PushEnd{1, true, 42},
          PushEndReply{1, true}};
}

std::vector<KvTransferParams> params() {
  KvTransferParams to_p;
  to_p.do_remote_decode = true;
  to_p.baton_seed = 7;
  KvTransferParams from_p;
  from_p.do_remote_prefill = true;
  from_p.remote_engine_id = "p";
  from_p.remote_request_id = "cmpl-1";
  from_p.remote_host = "127.0.0.1";
  from_p.remote_port = 20001;
  from_p.remote_block_ids = {{1, 2}, {3}};
  from_p.remote_num_prompt_tokens = 33;
  from_p.remote_block_size = 16;
  from_p.last_token_id = 42;
  from_p.baton_offer_id = 5;
  from_p.kv_lease_duration_s = 30;
  return {to_p, from_p};
}

std::vector<FuzzSeed> seeds() {
  std::vector<FuzzSeed> all;
  for (const Message& message : messages()) all.push_back({fmt::format("frame_{}", all.size()), encode_frame(message)});
  for (const KvTransferParams& one : params()) {
    const std::string text = one.to_json().dump();
    const auto bytes = std::as_bytes(std::span(text));
    all.push_back({fmt::format("params_{}", all.size()), {bytes.begin(), bytes.end()}});
  }
  return all;
}

}  // namespace
}  // namespace baton::wire

int main(int argc, char** argv) { return baton::write_fuzz_seeds(argc, argv, baton::wire::seeds()); }
