"""The requests that a deployment answers, and the one-rank engine of the same checkpoint that says what is right.

An answer is what the contract fixes: token ids, logprobs as printed, why it ended, and the counts of usage.
"""
import concurrent.futures
import json

import harness

LONG_TOKENS = 12_800  # above 16 lanes of 768: every context rank of any allowed layout holds some of it
WORDS = ("wind hill river stone light winter letter garden engine window morning silver road bridge paper sound "
         "harbour field night candle").split()


def prose(seed, words):
    """Words in an order of its own for each seed."""
    state, out = seed * 2654435761 % 2**32 or 1, []
    for _ in range(words):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(WORDS[(state >> 16) % len(WORDS)])
    return " ".join(out)


def requests_for(model, endpoints, long_prompt):
    """[(name, path, body)]: each kind as often as there are decode engines, at most 32, so that each gets some."""
    base = {"model": model, "ignore_eos": True, "return_token_ids": True}
    made = []
    for i in range(max(2, min(endpoints, 32))):
        text = {**base, "prompt": f"{i}: {prose(i + 1, 6 + 5 * (i % 7))}"}
        made.append((f"greedy-{i}", "/v1/completions", {**text, "max_tokens": 8, "temperature": 0, "logprobs": 3}))
        if i < 8:
            made.append((f"seeded-{i}", "/v1/completions", {**text, "max_tokens": 8, "temperature": 0.9, "top_p": 0.95,
                                                            "top_k": 40, "seed": 100 + i, "logprobs": 1}))
    for i in range(2):
        chat = {**base, "messages": [{"role": "user", "content": prose(90 + i, 9)}], "max_tokens": 8}
        made.append((f"chat-greedy-{i}", "/v1/chat/completions", {**chat, "temperature": 0, "logprobs": True,
                                                                  "top_logprobs": 2}))
        made.append((f"chat-seeded-{i}", "/v1/chat/completions", {**chat, "temperature": 1.0, "top_p": 0.95,
                                                                  "seed": 7 + i}))
        made.append((f"stream-{i}", "/v1/completions", {**base, "prompt": prose(70 + i, 12), "max_tokens": 8,
                                                        "temperature": 0, "stream": True,
                                                        "stream_options": {"include_usage": True}}))
    if long_prompt:
        text = prose(1, LONG_TOKENS // 4)[:LONG_TOKENS]
        made.append(("long", "/v1/completions", {**base, "prompt": text, "max_tokens": 6, "temperature": 0,
                                                 "logprobs": 2}))
    return made


def counts(usage):
    return [usage["prompt_tokens"], usage["completion_tokens"]] if usage else None


def whole_answer(body):
    choice = body["choices"][0]
    return {"ids": choice["token_ids"], "logprobs": choice["logprobs"], "end": choice["finish_reason"],
            "usage": counts(body["usage"])}


def streamed_answer(events):
    ids, end, usage, logprobs = [], None, None, []
    for event in events:
        if event == "[DONE]":
            continue
        if "error" in event:
            raise AssertionError(f"an error in the stream: {event['error']}")
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
            end = choice.get("finish_reason") or end
            if choice.get("logprobs"):
                logprobs.append(choice["logprobs"])
        usage = event.get("usage") or usage
    return {"ids": ids, "logprobs": logprobs, "end": end, "usage": counts(usage)}


def ask(endpoint, path, body, timeout):
    host, port = endpoint
    if body.get("stream"):
        return streamed_answer(harness.stream(port, path, body, timeout=timeout, host=host))
    status, answer, _ = harness.post(port, path, body, timeout=timeout, host=host)
    if status != 200:
        raise AssertionError(f"status {status}: {json.dumps(answer)[:400]}")
    return whole_answer(answer)


def answers(endpoint, requests, timeout, at_once):
    """{name: answer, or the error as text}."""
    def one(request):
        name, path, body = request
        try:
            return name, ask(endpoint, path, body, timeout)
        except Exception as error:  # whatever went wrong is this request's result
            return name, f"{type(error).__name__}: {error}"

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return dict(pool.map(one, requests))


def differences(wanted, got):
    """[(request, what is different)], worst kind first: no answer, other tokens, other logprobs."""
    found = []
    for name, right in wanted.items():
        seen = got.get(name, "no answer")
        if isinstance(right, str):
            found.append((name, f"the one-rank engine failed: {right}"))
        elif isinstance(seen, str):
            found.append((name, seen))
        elif seen != right:
            field = next(field for field in ("ids", "end", "usage", "logprobs") if seen[field] != right[field])
            found.append((name, f"{field}: {json.dumps(seen[field])[:200]} instead of {json.dumps(right[field])[:200]}"))
    return found
