"""vLLM's engine in process as a side of a comparison: load_server's words (bench/engine/load_server.cc), its measure of
rates and its greedy requests of random tokens. Runs in the environment of install_vllm_cpu.sh.
    vllm_side.py MODEL THREADS"""
import os
import random
import sys
import time

model, threads = sys.argv[1], int(sys.argv[2])
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0" if threads == 1 else f"0-{threads - 1}")
os.environ.setdefault("OMP_NUM_THREADS", str(threads))
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

from vllm import EngineArgs, LLMEngine, SamplingParams  # noqa: E402  (reads the environment)
from vllm.sampling_params import RequestOutputKind  # noqa: E402

engine = LLMEngine.from_engine_args(EngineArgs(
    model=model, dtype="bfloat16", max_model_len=4352, max_num_seqs=32, max_num_batched_tokens=4352,
    enable_prefix_caching=False, skip_tokenizer_init=True, disable_log_stats=True))
vocab = engine.model_config.get_vocab_size()
count = 0


def measure(requests, prompt, output):
    global count
    generator = random.Random(count)
    sampling = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False,
                              output_kind=RequestOutputKind.DELTA)
    prompts = [[generator.randrange(10, vocab) for _ in range(prompt)] for _ in range(requests)]
    began = time.monotonic()
    for ids in prompts:
        count += 1
        engine.add_request(str(count), {"prompt_token_ids": ids}, sampling.clone())
    started, tokens = set(), 0
    all_started = ended = None
    while engine.has_unfinished_requests():
        for out in engine.step():
            tokens += len(out.outputs[0].token_ids)
            started.add(out.request_id)
            if out.finished and ended is None:
                ended = True
        now = time.monotonic()
        if all_started is None and len(started) == requests:
            all_started, before = now, tokens
        if ended is True:
            ended, until = now, tokens
    decoding = ended - all_started
    return requests * prompt / (all_started - began), (until - before) / decoding if decoding > 0 else 0


print("ready", flush=True)
for line in sys.stdin:
    print("rates {:.3f} {:.3f}".format(*measure(*map(int, line.split()))), flush=True)
