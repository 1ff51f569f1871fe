"""What a layerwise hand-off hides: pushes and pulls of long prompts side by side, in real processes over TCP.

usage: layerwise_overlap.py [MODEL] [REQUESTS] [REPEATS OF THE TEXT]. Prints, per mode, the median time to the first token,
and of the layerwise one the share of the hand-off's time that the prefill covered. Standard library only.
"""
import http.client
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402

TEXT = "Either the well was very deep, or she fell very slowly, for she had plenty of time. "


def first_token_seconds(port, prompt):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True}
    began = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read(20)
    took = time.monotonic() - began
    response.read()
    connection.close()
    return took


def measure(mode, connector, model, requests, repeats):
    processes = []
    extra = {"kv_connector": connector, "kv_connector_extra_config": {"baton_transport": "tcp"}}
    try:
        flags = ("--max-num-batched-tokens", "512", "--threads", "1", "--kv-cache-memory-bytes", "1G")
        test = harness.ServingTest
        p = test.prefill(harness.free_port(), *flags, into=processes, model=model, extra=extra)
        d = test.decode(*flags, into=processes, model=model, extra=extra)
        proxy = test.proxy([p], [d], "--mode", mode, into=processes)
        times = [first_token_seconds(proxy.port, f"{i} " + TEXT * repeats) for i in range(requests + 1)][1:]
        moved = harness.metric(d.port, "vllm:mooncake_bytes_transferred_sum")
        line = f"{mode:10} first token {statistics.median(times):.4f} s, {moved / (requests + 1) / 1e6:.1f} MB a request"
        if mode == "layerwise":
            hidden = harness.metric(p.port, "baton_handoff_push_hidden_seconds_total")
            exposed = harness.metric(p.port, "baton_handoff_push_exposed_seconds_total")
            line += (f"; hand-off {1e3 * (hidden + exposed) / (requests + 1):.2f} ms, "
                     f"of which hidden behind prefill {100 * hidden / (hidden + exposed):.1f} %")
        else:
            line += f"; hand-off {1e3 * harness.metric(d.port, 'vllm:mooncake_xfer_time_seconds_sum') / (requests + 1):.2f} ms"
        print(line, flush=True)
    finally:
        harness.end_all(processes)


if __name__ == "__main__":
    given = sys.argv[1:] + [harness.TINY, "8", "60"][len(sys.argv) - 1:]
    for mode, connector in (("pull", "MooncakeConnectorV1"), ("layerwise", "MooncakeLayerwiseConnector")):
        measure(mode, connector, given[0], int(given[1]), int(given[2]))
