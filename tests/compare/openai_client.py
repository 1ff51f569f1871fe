#!/usr/bin/env python3
"""The `openai` Python client (PyPI) against an engine and against the proxy: whole and streamed answers, both routes;
and tool calls of a model that always calls.

  tests/compare/openai_client.sh          starts them on the small checkpoint and runs this
"""
import json
import sys

import openai


def check(base_url, name):
    client = openai.OpenAI(base_url=base_url + "/v1", api_key="none")
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "Say something about wells."}]

    whole = client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=0)
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage.completion_tokens <= 16
    streamed, usage = "", None
    for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=0,
                                                stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            streamed += chunk.choices[0].delta.content or ""
        if chunk.usage:
            usage = chunk.usage
    assert streamed == whole.choices[0].message.content, (streamed, whole.choices[0].message.content)
    assert usage.completion_tokens == whole.usage.completion_tokens

    completion = client.completions.create(model=model, prompt="Down, down", max_tokens=12, seed=7, logprobs=2)
    again = "".join(chunk.choices[0].text for chunk in client.completions.create(
        model=model, prompt="Down, down", max_tokens=12, seed=7, stream=True) if chunk.choices)
    assert again == completion.choices[0].text
    assert len(completion.choices[0].logprobs.tokens) == completion.usage.completion_tokens
    many = client.chat.completions.create(model=model, messages=messages, max_tokens=8, seed=3, n=3, logprobs=True,
                                          top_logprobs=2)
    assert len(many.choices) == 3 and len(many.choices[0].logprobs.content[0].top_logprobs) == 2

    for call, expected in ((lambda: client.chat.completions.create(model="no-such-model", messages=messages),
                            openai.NotFoundError),
                           (lambda: client.completions.create(model=model, prompt="x", max_tokens=10**7),
                            openai.BadRequestError)):
        try:
            call()
        except expected as error:
            assert error.body["message"], error
        else:
            raise AssertionError(f"{expected} expected")
    print(f"openai {openai.__version__} against the {name}: models, chat and completions, whole and streamed, n, "
          "logprobs, errors: all as expected")


def check_tools(base_url, name):
    """The client's own helpers put streams together: what they make of ours is what applications see."""
    client = openai.OpenAI(base_url=base_url + "/v1", api_key="none")
    model = client.models.list().data[0].id
    ask = {"model": model, "messages": [{"role": "user", "content": "Weather?"}],
           "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]}
    message = client.chat.completions.create(**ask).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["days"] == 2, call
    assert message.reasoning and message.content, message
    with client.chat.completions.stream(**ask) as stream:
        deltas = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls", final
    assert final.message.tool_calls[0].id == call.id, final
    assert final.message.tool_calls[0].function.arguments == call.function.arguments == "".join(deltas), final
    assert final.message.content == message.content, final
    again = client.chat.completions.create(**{**ask, "messages": [
        *ask["messages"], message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]})
    assert again.choices[0].finish_reason == "tool_calls"
    try:
        client.chat.completions.create(**ask, tool_choice="required")
    except openai.BadRequestError as error:
        assert error.param == "tool_choice", error
    else:
        raise AssertionError("tool_choice required is a 400")
    print(f"openai {openai.__version__} against the {name}: tool calls and reasoning, whole and streamed, and their "
          "history: all as expected")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        label, url = argument.split("=", 1)
        (check_tools if label.startswith("caller") else check)(url, label)
