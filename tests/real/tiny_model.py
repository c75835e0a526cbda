"""A model of half a megabyte for llama.cpp: it says random words and sometimes calls a tool.

The next token depends on the last one alone: the embedding picks a row, all layers add nothing,
and the output matrix has the logarithms of that row's probabilities. Texts mean nothing; what a
server does with them is real.
"""

from __future__ import annotations

import math
import struct
from array import array
from pathlib import Path
from typing import Any

WIDTH, HIDDEN, HEADS, KV_HEADS = 320, 128, 4, 2
MERGES = ("th", "in", "er", "an", "re", "on")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
LETTERS = "etaoinshrdlucmfwypvbgk"
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
Call one so: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('a system message must be the first') }}
{%- elif message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML with tools, as strict as the templates that some models come with."""


def write_model(path: Path, *, window: int = 8192, calls: float = 0.55) -> None:
    """Write the model; after a line break it calls a tool with probability `calls`."""
    tokens, kinds = _vocabulary()
    size = len(tokens)
    embedding = array("f", bytes(4 * size * WIDTH))
    output = array("f", bytes(4 * size * WIDTH))
    for number, token in enumerate(tokens):
        embedding[number * WIDTH + number] = 1.0
        for after, chance in _chances(token, tokens, calls).items():
            # The normalised embedding has one entry, the square root of the width.
            output[after * WIDTH + number] = math.log(chance) / math.sqrt(WIDTH)
    tensors: list[tuple[str, tuple[int, ...], array[float]]] = [
        ("token_embd.weight", (WIDTH, size), embedding),
        ("output_norm.weight", (WIDTH,), array("f", [1.0] * WIDTH)),
        ("output.weight", (WIDTH, size), output),
    ]
    narrow = WIDTH // HEADS * KV_HEADS
    for name in ("attn_norm", "ffn_norm"):
        tensors.append((f"blk.0.{name}.weight", (WIDTH,), array("f", [1.0] * WIDTH)))
    for name, shape in (
        ("attn_q", (WIDTH, WIDTH)),
        ("attn_k", (WIDTH, narrow)),
        ("attn_v", (WIDTH, narrow)),
        ("attn_output", (WIDTH, WIDTH)),
        ("ffn_gate", (WIDTH, HIDDEN)),
        ("ffn_up", (WIDTH, HIDDEN)),
        ("ffn_down", (HIDDEN, WIDTH)),
    ):
        tensors.append((f"blk.0.{name}.weight", shape, array("f", bytes(4 * shape[0] * shape[1]))))
    about: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.context_length": window,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "llama.vocab_size": size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.padding_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    path.write_bytes(_gguf(about, tensors))


def _vocabulary() -> tuple[list[str], list[int]]:
    """Every byte as GPT-2 spells it, a few pairs, and marks; with the kinds of llama.cpp."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in spelled]
    spelled |= {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    tokens = [*(spelled[byte] for byte in range(256)), *MERGES, *CONTROL, *MARKS]
    plain = 256 + len(MERGES)
    return tokens, [1] * plain + [3] * len(CONTROL) + [4] * len(MARKS)


def _chances(token: str, tokens: list[str], calls: float) -> dict[int, float]:
    """The probability of each token after this one."""
    space, line = tokens[32], tokens[10]

    def letters(total: float) -> dict[str, float]:
        weights = [1 / (place + 2) for place in range(len(LETTERS))]
        return {c: total * w / sum(weights) for c, w in zip(LETTERS, weights, strict=True)}

    after: dict[str, dict[str, float]] = {
        line: {"<tool_call>": calls, "{": 0.05, **letters(0.95 - calls)},
        "<tool_call>": {line: 1.0},
        "</tool_call>": {"<|im_end|>": 0.6, line: 0.4},
        "<think>": {line: 0.1, **letters(0.9)},
        "</think>": {line: 1.0},
        "{": {'"': 0.9, "}": 0.1},
        '"': {":": 0.2, ",": 0.1, "}": 0.1, "]": 0.1, ".": 0.1, "/": 0.05, **letters(0.35)},
        "}": {"</tool_call>": 0.4, "}": 0.3, line: 0.1, "<": 0.1, ",": 0.1},
    }
    value = {'"': 0.5, space: 0.1, "1": 0.1, "2": 0.1, "t": 0.1, "f": 0.1}
    word = {space: 0.12, '"': 0.25, "<|im_end|>": 0.05, ".": 0.02, line: 0.05, **letters(0.51)}
    rows = after.get(token) or (value if token in (",", ":") else word)
    chances = dict.fromkeys(range(len(tokens)), 1e-7)
    for name, chance in rows.items():
        chances[tokens.index(name)] += chance
    return chances


# The file format: GGUF, version 3


def _gguf(about: dict[str, Any], tensors: list[tuple[str, tuple[int, ...], array[float]]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(about))
    head += b"".join(_text(key) + _value(value) for key, value in about.items())
    data = b""
    for name, shape, numbers in tensors:
        head += _text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *shape, 0, len(data))
        data += _padded(numbers.tobytes())
    return _padded(head) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 32)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
