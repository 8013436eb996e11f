"""Records the output of the official cookbook's renderers for conversations and sampled tokens.

    python renderer_goldens.py <directory of the tokenizer goldens> <directory to write to>

Uses the tokenizers of `tokenizer_goldens.py` with the special tokens of each model family.
"""

import base64
import json
import logging
import os
import struct
import sys
import types
import warnings
from pathlib import Path

if os.environ.get("GOLDENS_TORCH") != "real":
    sys.path.insert(0, str(Path(__file__).parent / "standins"))

import tinker
from tokenizers import AddedToken, Tokenizer

import tinker_cookbook

# The `__init__` modules of these packages import data set libraries, which the modules below do not need.
for package in ("supervised", "rl"):
    bare = types.ModuleType(f"tinker_cookbook.{package}")
    bare.__path__ = [str(Path(tinker_cookbook.__file__).parent / package)]
    sys.modules[bare.__name__] = bare

from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.model_info import (
    get_deepseek_info,
    get_gpt_oss_info,
    get_llama_info,
    get_moonshot_info,
    get_nvidia_info,
    get_qwen_info,
    get_thinkingmachines_info,
    get_zai_info,
)
from PIL import Image

from tinker_cookbook.renderers import base, get_renderer
from tinker_cookbook.renderers.gpt_oss import GptOssRenderer
from tinker_cookbook.renderers.qwen3 import Qwen3Renderer
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.types import Trajectory, Transition
from tinker_cookbook.supervised.common import datum_from_model_input_weights

PINNED = "0.5.8"
DATE = "2026-01-02"

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


class Reference:
    """Wraps the tokenizers library with the methods that the renderers call."""

    name_or_path = "small"

    def __init__(self, library, bos, eos):
        self.library = library
        self.bos_token = bos
        self.eos_token_id = library.token_to_id(eos)

    def encode(self, text, add_special_tokens=True, split_special_tokens=False):
        self.library.encode_special_tokens = split_special_tokens
        return self.library.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, tokens):
        return self.library.decode(tokens, skip_special_tokens=False)

    def convert_tokens_to_ids(self, token):
        return self.library.token_to_id(token)


class ImageProcessor:
    """Gives every image the same number of tokens; the counts are compared elsewhere."""

    merge_size = 2

    def get_number_of_image_patches(self, height, width, images_kwargs):
        return 4 * IMAGE_TOKENS


HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"]
GLM_TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
DEEPSEEK = ["end▁of▁sentence", "Assistant", "System"]
DEEPSEEK_TAGS = ["tool▁calls▁begin", "tool▁calls▁end", "tool▁call▁begin", "tool▁call▁end", "tool▁sep", "tool▁output▁begin", "tool▁output▁end"]
KIMI = ["<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<think>", "</think>"]
KIMI_CALLS = ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"]
KIMI_MEDIA = ["<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>"]

# shape, special tokens, others, first token, last token
TOKENIZERS = {
    "llama3": ("llama3", ["<|eom_id|>", "<|python_tag|>"], [], "<|begin_of_text|>", "<|eot_id|>"),
    "qwen3": ("qwen", ["<|vision_start|>", "<|vision_end|>"], ["<tool_response>", "</tool_response>"], None, "<|im_end|>"),
    "gpt_oss": ("o200k", HARMONY, [], "<|startoftext|>", "<|return|>"),
    "glm": ("llama3", GLM, GLM_TAGS, None, "<|endoftext|>"),
    "deepseek": ("deepseek", [f"<｜{name}｜>" for name in DEEPSEEK], [*(f"<｜{name}｜>" for name in DEEPSEEK_TAGS), "｜DSML｜"], "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "kimi": ("o200k", [*KIMI, *KIMI_CALLS, *KIMI_MEDIA], [], None, "<|im_end|>"),
}

# The renderers of each family, by the names of the reference.
NAMES = {
    "llama3": ["role_colon", "llama3"],
    "qwen3": [
        *("qwen3", "qwen3_disable_thinking", "qwen3_instruct", "qwen3_vl", "qwen3_vl_instruct"),
        *("qwen3_5", "qwen3_5_disable_thinking", "qwen3_5_preserve_thinking"),
        *("qwen3_8_xhigh_reasoning", "qwen3_8_medium_reasoning", "qwen3_8_low_reasoning", "qwen3_8_disable_thinking"),
        *("nemotron3", "nemotron3_low_thinking", "nemotron3_disable_thinking", "nemotron3_preserve_thinking"),
        *("nemotron3_ultra", "nemotron3_ultra_disable_thinking", "nemotron3_ultra_medium_thinking", "nemotron3_ultra_preserve_thinking"),
    ],
    "gpt_oss": ["gpt_oss_no_sysprompt"],
    "glm": ["glm5_3_max_reasoning", "glm5_3_low_reasoning", "glm5_3_high_reasoning"],
    "deepseek": [
        *("deepseekv3", "deepseekv3_disable_thinking", "deepseekv3_thinking"),
        *("deepseekv4_1", "deepseekv4_1_low_reasoning", "deepseekv4_1_max_reasoning", "deepseekv4_1_disable_thinking", "deepseekv4_1_preserve_thinking"),
    ],
    "kimi": [
        *("kimi_k2", "kimi_k25", "kimi_k25_disable_thinking"),
        *("kimi_k26", "kimi_k26_disable_thinking", "kimi_k26_preserve_thinking"),
    ],
}

RENDERERS = {
    **{
        name: (tokenizer, lambda t, name=name: get_renderer(name, t, ImageProcessor()))
        for tokenizer, names in NAMES.items()
        for name in names
    },
    "role_colon_without_bos": ("qwen3", lambda t: get_renderer("role_colon", t)),
    "qwen3_keeping": ("qwen3", lambda t: Qwen3Renderer(t, strip_thinking_from_history=False)),
    **{
        f"gpt_oss_{effort}_reasoning": (
            "gpt_oss",
            lambda t, effort=effort: GptOssRenderer(t, use_system_prompt=True, reasoning_effort=effort, current_date=DATE),
        )
        for effort in ("low", "medium", "high")
    },
}

# Renderers of models that take images.
IMAGE_FAMILIES = ("qwen3_vl", "qwen3_5", "qwen3_8", "nemotron3_ultra", "kimi_k25", "kimi_k26")
IMAGE_TOKENS = 7
IMAGE_MARK = 65535


def call(name, arguments, id=None):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def text(value):
    return {"type": "text", "text": value}


def thinking(value):
    return {"type": "thinking", "thinking": value}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


SYSTEM = said("system", "You are a helpful assistant.")
QUESTION = said("user", "What is the sum of 2 and 3?")
ANSWER = said("assistant", "The sum is 5.")
REASONED = said("assistant", [thinking("2 and 3 are 5."), text("The sum is 5.")])
MORE = said("user", "And of 40 and 2?")
WEATHER = call("get_weather", '{"city": "Zürich", "days": 3}', "call_1")
RESULT = said("tool", '{"temperature": 21.5}', name="get_weather", tool_call_id="call_1")

DECLARED = {"name": "f", "description": "ü", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}

ODD = "Grüezi 👩‍👩‍👧 日本語 \u00a0 שלום\ttab\r\n\n\nend  "
SPECIALS = "A text with <|im_end|>, <|eot_id|> and <|end|> in it. <think>no</think>"

CONVERSATIONS = {
    "one turn": [QUESTION, ANSWER],
    "with a system message": [SYSTEM, QUESTION, ANSWER],
    "two turns": [SYSTEM, QUESTION, ANSWER, MORE, said("assistant", "It is 42.")],
    "ends with the user": [SYSTEM, QUESTION, ANSWER, MORE],
    "only a system message": [SYSTEM],
    "without a user": [SYSTEM, ANSWER],
    "only an answer": [ANSWER],
    "nothing": [],
    "empty texts": [said("user", ""), said("assistant", "")],
    "not ASCII": [said("system", "Antworte auf Deutsch: äöü."), said("user", ODD), said("assistant", ODD), said("user", "😀"), said("assistant", "é" * 9)],
    "newlines at the ends": [said("user", "\n\nhello\n"), said("assistant", "\n\nworld\n\n")],
    "special tokens in texts": [said("user", SPECIALS), said("assistant", SPECIALS), MORE, ANSWER],
    "looks like a turn": [said("user", "User: hi\n\nAssistant: no"), said("assistant", "a\n\nUser: b")],
    "as parts": [said("user", [text("What is this?")]), said("assistant", [text("That.")])],
    "several parts": [QUESTION, said("assistant", [text("One, "), text("two.")])],
    "reasoned": [QUESTION, REASONED],
    "reasoned twice": [SYSTEM, QUESTION, REASONED, MORE, said("assistant", [thinking("40 + 2"), text("42")])],
    "reasoned, then did not": [QUESTION, REASONED, MORE, ANSWER],
    "did not, then reasoned": [QUESTION, ANSWER, MORE, REASONED],
    "reasoned with newlines": [QUESTION, said("assistant", [thinking("\n\nfirst\nsecond\n\n"), text("\n\nThe sum is 5.")])],
    "reasoned without a word": [QUESTION, said("assistant", [thinking("hm")])],
    "reasoned between": [QUESTION, said("assistant", [text("Well."), thinking("2+3"), text("5"), thinking("sure"), text("!")])],
    "reasoned inside the text": [QUESTION, said("assistant", "<think>\n2+3\n</think>\n\n5"), MORE, said("assistant", "<think>x</think>42")],
    "reasoned without an end": [QUESTION, said("assistant", "<think>and so on")],
    "without a user, reasoned": [SYSTEM, REASONED],
    "tool call": [SYSTEM, QUESTION, said("assistant", "", tool_calls=[WEATHER]), RESULT, said("assistant", "21.5 degrees.")],
    "ends with a tool call": [QUESTION, said("assistant", "I'll look.", tool_calls=[WEATHER])],
    "ends with a tool result": [QUESTION, said("assistant", "I'll look.", tool_calls=[WEATHER]), RESULT],
    "two tool calls": [
        QUESTION,
        said("assistant", [thinking("both"), text("I'll look.")], tool_calls=[WEATHER, call("noop", "{}")]),
        RESULT,
        said("tool", "done", name="functions.noop"),
        said("assistant", [thinking("so"), text("Done.")]),
    ],
    "reasoned, then called": [QUESTION, said("assistant", [thinking("look it up")], tool_calls=[WEATHER])],
    "odd arguments": [
        QUESTION,
        said(
            "assistant",
            "",
            tool_calls=[
                call("f", '{"b":1.0,"a":[1e3,1E-7,-0,-0.0,12345678901234567890,1e16,0.1,1e400,2.50],"2":null,"1":"\\u00e9\\n\\"/\\u007f😀","c":{},"d":[],"e":true,"b":2}'),
                call("g", ' [1, "x"] '),
            ],
        ),
    ],
    "bad arguments": [QUESTION, said("assistant", "", tool_calls=[call("f", '{"a": }')])],
    "no tool calls": [QUESTION, said("assistant", "None.", tool_calls=[])],
    "other roles": [said("developer", "Be short."), QUESTION, said("critic", "Bad."), ANSWER],
    "two users": [QUESTION, MORE, ANSWER],
    "reasoned through calls": [
        SYSTEM,
        QUESTION,
        said("assistant", [thinking("look")], tool_calls=[WEATHER]),
        RESULT,
        said("assistant", [thinking("again"), text("More.")], tool_calls=[call("noop", "{}", "call_2")]),
        said("tool", "done", name="noop", tool_call_id="call_2"),
        REASONED,
        MORE,
        said("assistant", [thinking("once more"), text("Wait.")], tool_calls=[WEATHER]),
        RESULT,
        said("assistant", [thinking("40 + 2"), text("42")]),
    ],
    "results in another order": [
        QUESTION,
        said("assistant", "Both.", tool_calls=[WEATHER, call("noop", "{}", "call_2")]),
        said("tool", "second", name="noop", tool_call_id="call_2"),
        said("tool", "first", name="get_weather", tool_call_id="call_1"),
        ANSWER,
    ],
    "results with other ids": [
        QUESTION,
        said("assistant", "Both.", tool_calls=[WEATHER, call("noop", "{}", "call_2")]),
        said("tool", "b", name="noop", tool_call_id="call_2"),
        said("tool", "a", name="noop", tool_call_id="call_9"),
        MORE,
        ANSWER,
    ],
    "a call of every type": [
        QUESTION,
        said("assistant", " Go. ", tool_calls=[call("f", '{"s": "a\\nb", "i": 1, "f": 2.0, "t": true, "n": null, "l": ["ü"], "o": {"k": "ü"}}', "id:1")]),
        said("tool", " ok ", name="f", tool_call_id="id:1"),
        said("assistant", ""),
    ],
    "a later system message": [SYSTEM, QUESTION, REASONED, said("system", "Be brief."), MORE, REASONED],
    "a system message before the answer": [QUESTION, REASONED, said("system", "Be brief."), ANSWER],
    "declared tools": [said("tool_declare", json.dumps([{"type": "function", "function": DECLARED}])), QUESTION, REASONED, MORE, REASONED],
    "declared tools after the system message": [SYSTEM, said("tool_declare", json.dumps([{"type": "function", "function": DECLARED}])), QUESTION, REASONED, MORE, ANSWER],
    "spaces at the ends": [
        said("system", "  \n"),
        said("user", [text(" \t"), text("\n a \n"), text(" ")]),
        said("assistant", [text("  "), thinking("  b\u2003 "), text("\n c  "), text("\n")]),
        said("user", "\u00a0d\u001c "),
        said("assistant", " \n "),
    ],
    "no parts": [said("system", []), said("user", []), said("assistant", [])],
    "two assistants": [QUESTION, ANSWER, said("assistant", "And it is odd.")],
}

IMAGE = {"type": "image"}

IMAGE_CONVERSATIONS = {
    "an image": [said("user", [IMAGE, text("What is this?")]), ANSWER],
    "two images": [SYSTEM, said("user", [text("Compare"), IMAGE, text("with\n"), IMAGE, text(""), IMAGE]), REASONED, MORE, ANSWER],
    "only an image": [said("user", [IMAGE]), REASONED],
    "an image in a result": [
        QUESTION,
        said("assistant", "", tool_calls=[WEATHER]),
        {**RESULT, "content": [text("See "), IMAGE, text(" ")]},
        RESULT,
        ANSWER,
    ],
}

TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "description": "Where and when",
            "properties": {
                "city": {"type": "string", "title": "City", "description": "Its name, e.g. Zürich", "examples": ["Bern", "Genève"]},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "nullable": True},
                "hours": {"type": "array", "items": {"type": "number"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]},
                "either": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
                "any": {"anyOf": [{"type": "null"}, {"type": "array"}]},
                "both": {"type": ["string", "integer"], "default": [1, {"a": "ü"}]},
                "free": {},
            },
            "required": ["city"],
        },
    },
    {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}},
]

TYPED = [
    {
        "name": "search",
        "description": "Finds things.\n\nQuickly: ü",
        "parameters": {
            "type": "object",
            "$defs": {
                "Node": {"type": "object", "description": "A node\nof a tree", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}, "required": ["name"]},
                "Kind": {"enum": ["a", 1, None, True, 2.5]},
            },
            "properties": {
                "query": {"type": "string", "description": "What", "minLength": 1, "maxLength": 20, "pattern": "^a"},
                "count": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
                "ratio": {"type": "number", "default": 0.5},
                "exact": {"type": "boolean", "default": False},
                "tags": {"type": "array", "items": {"type": "string", "description": "A tag"}, "minItems": 1, "default": ["ü"]},
                "plain": {"type": "array", "items": {"type": "integer"}},
                "any": {"type": "array"},
                "tree": {"$ref": "#/$defs/Node"},
                "kind": {"$ref": "#/$defs/Kind", "description": "One of them"},
                "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "unit": {"type": "string", "enum": ["m", "km"], "default": "m"},
                "maybe": {"type": ["string", "null"]},
                "nested": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number", "description": "deep"}}, "required": ["b"], "additionalProperties": False},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "free": {},
            },
            "required": ["query", "count"],
            "additionalProperties": True,
        },
    },
    {"name": "self", "description": "", "parameters": {"type": "object", "properties": {"next": {"$ref": "#"}, "value": {"type": "string"}}}},
]

PLAIN_RESPONSES = ["The sum is 5.", "", " A text.\n\n", ODD, "\n\nleading"]

XML = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\ny\n</parameter>\n</function>\n</tool_call>"
OPENED = [
    "2+3\n</think>\n\n5",
    "\n</think>\n\n5",
    "\n\n</think>\n\n\n 5 \n",
    " \t a \n\n</think>b<think> c </think>d<think> e </think>",
    "<think>\n2+3\n</think>\n\n5",
    "<think>2+3</think>5",
    "never closed",
    "a</think>b</think>c",
    "</think>",
    "<think></think>5",
]
XML_RESPONSES = [
    XML,
    f"Go.\n\n{XML}",
    f"x\n</think>\n\nGo.\n\n{XML}\n{XML}",
    f"x\n</think>\n\n{XML}\n",
    f"x</think>{XML}\nthen",
    '<tool_call>\n{"name": "g", "arguments": {"a": 1}}\n</tool_call>\n' + XML + '<tool_call>\n{"name": "h", "arguments": {}}\n</tool_call>',
    "<tool_call><function=f></function></tool_call>",
    "<tool_call><function= ></function></tool_call>",
    "<tool_call><function=f><parameter= >1</parameter></function></tool_call>",
    "<tool_call><function=f>x<parameter=a>1</parameter></function></tool_call>",
    "<tool_call><function=f><parameter=a>1</parameter>x</function></tool_call>",
    "<tool_call><function=f><parameter=a> {\"k\": [1.0, NaN]} </parameter><parameter=a>\u001c b </parameter></function></tool_call>",
    "<tool_call>nothing</tool_call>",
    "<tool_call>\n<function=f>",
]

RESPONSES = {
    "qwen3_vl": [
        *(f"{one}<|im_end|>" for one in [*OPENED, "I'll look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<tool_call>{"]),
        *(f"{one}<|im_end|>" for one in PLAIN_RESPONSES),
        *PLAIN_RESPONSES[:2],
        "a<|im_end|>b<|im_end|>",
        *(f"{one}<|im_end|>" for one in XML_RESPONSES[:3]),
    ],
    **{
        family: [
            *(f"{one}<|im_end|>" for one in [*OPENED, *XML_RESPONSES, *PLAIN_RESPONSES]),
            *OPENED[:3],
            "a<|im_end|>b<|im_end|>",
        ]
        for family in ("qwen3_5", "qwen3_8", "nemotron3")
    },
    "glm5_3": [
        *(f"{one}{end}" for one in [*OPENED[:4], *PLAIN_RESPONSES] for end in ["<|user|>", "<|observation|>", "<|endoftext|>", "", "<|user|><|observation|>"]),
        *(f"{one}<|user|>" for one in OPENED),
        *(
            f"{one}<|observation|>"
            for one in [
                "x</think>Go.<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>x y</arg_value></tool_call>",
                "x</think><tool_call>f</tool_call><tool_call> g-h.i <arg_key> a </arg_key> <arg_value> [1.0] </arg_value> </tool_call>",
                "<tool_call></tool_call>",
                "<tool_call>f x</tool_call>",
                "<tool_call>f<arg_key> </arg_key><arg_value>1</arg_value></tool_call>",
                "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>x<arg_key>b</arg_key><arg_value>1</arg_value></tool_call>",
                "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>x</tool_call>",
                '<tool_call>é<arg_key>a</arg_key><arg_value>1</arg_value></tool_call><tool_call>{"name": "j", "arguments": {}}</tool_call>',
                "<tool_call>f",
            ]
        ),
    ],
    "deepseekv3": [
        *(f"{one}{end}" for one in [*OPENED[:4], *PLAIN_RESPONSES] for end in ["<｜end▁of▁sentence｜>", "", "<｜end▁of▁sentence｜><｜end▁of▁sentence｜>"]),
        *(f"{one}<｜end▁of▁sentence｜>" for one in OPENED),
        *(
            f"{one}<｜end▁of▁sentence｜>"
            for one in [
                'Go. \n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
                'x</think> Go.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜> {} <｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{bad<｜tool▁call▁end｜><｜tool▁calls▁end｜> after ',
                '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a-b<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
                '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>é_1<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
                " a <｜tool▁calls▁begin｜>",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁calls▁end｜>b",
            ]
        ),
    ],
    "deepseekv4_1": [
        *(f"{one}{end}" for one in [*OPENED[:4], *PLAIN_RESPONSES] for end in ["<｜end▁of▁sentence｜>", "", "<｜end▁of▁sentence｜><｜end▁of▁sentence｜>"]),
        *(f"{one}<｜end▁of▁sentence｜>" for one in OPENED),
        *(
            f"{one}<｜end▁of▁sentence｜>"
            for one in [
                'x</think>Go.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="a" string="true">x</｜DSML｜ parameter>\n<｜DSML｜ parameter name="b" string="false">[1.0, "ü"]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
                '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name="g">\n<｜DSML｜ parameter name="b" string="false">bad</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>after',
                '<｜DSML｜ calls>\n<｜DSML｜ invoke name=" ">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls> ',
                '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\nx\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
                '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name=" " string="true">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
                '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter name="a" string="true">x</｜DSML｜ parameter><｜DSML｜ parameter name="a" string="true">y</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>',
                "a\n<｜DSML｜ calls>\nnothing</｜DSML｜ calls>",
                "a\n\n<｜DSML｜ calls>",
                "a <｜DSML｜ invoke",
            ]
        ),
    ],
    "kimi": [
        *(f"{one}{end}" for one in [*OPENED[:4], *PLAIN_RESPONSES] for end in ["<|im_end|>", "", "<|im_end|><|im_end|>"]),
        *(f"{one}<|im_end|>" for one in OPENED),
        *(
            f"{one}<|im_end|>"
            for one in [
                'x</think>Go.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_call_begin|> functions.g.h:1 <|tool_call_argument_begin|> {bad <|tool_call_end|><|tool_calls_section_end|>after',
                'Go. <|tool_calls_section_begin|><|tool_call_begin|>f:12<|tool_call_argument_begin|> {} <|tool_call_end|><|tool_calls_section_end|>',
                "Go.<|tool_call_section_begin|><|tool_call_begin|>a.b:c:3<|tool_call_argument_begin|>[]<|tool_call_end|><|tool_call_section_end|>",
                "<|tool_calls_section_begin|><|tool_call_begin|>no number<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
                "a<|tool_calls_section_begin|>b",
                "a<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_calls_section_end|>",
                "a<|tool_call_begin|>f:0",
            ]
        ),
    ],
    "role_colon": [
        *(f"{one}{end}" for one in [" The sum is 5.", "", " ", "  two", ODD] for end in ["\n\nUser:", "<|eot_id|>", "", "\n\n", "\n\nUser:<|eot_id|>"]),
        " a\n\nUser: b\n\nUser:",
        " a\n\nUser: b",
        "User:",
    ],
    "llama3": [f"{one}{end}" for one in PLAIN_RESPONSES for end in ["<|eot_id|>", "", "<|eot_id|>x", "<|eot_id|><|eot_id|>", "<|end_of_text|>"]],
    "qwen3": [
        *(f"{one}{end}" for one in PLAIN_RESPONSES for end in ["<|im_end|>", "", "<|im_end|>x", "<|im_end|><|im_end|>", "<|endoftext|>"]),
        *(
            f"{one}<|im_end|>"
            for one in [
                "<think>\n2+3\n</think>\n\n5",
                "<think>\n\n</think>\n\n5",
                "<think>\n\n2\n\n3\n\n</think>\n\n\n5\n",
                "<think>2+3</think>5",
                "<think>\n2+3",
                "2+3</think>5",
                "Well.<think>a</think>b<think>c</think>",
                "<think>a</think><think>b</think>c",
                "<think></think>",
                '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
                'I\'ll look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1.0, "b": "ü"}}\n</tool_call>',
                '<think>\nx\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
                '<think>\nx\n</think>\n\nGo.\n<tool_call>\n{"name": "f", "arguments": {}, "id": "7"}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}, "id": 7}\n</tool_call>',
                '<tool_call>{"name": "f", "arguments": {"n": NaN}}</tool_call>then',
                "<tool_call>\n{not json}\n</tool_call>",
                "<tool_call>\n[1]\n</tool_call>",
                '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>',
                '<tool_call>\n{"name": "f", "arguments": "{}"}\n</tool_call>',
                '<tool_call>\n{"name": "f", "arguments": {}}',
                '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><tool_call>{',
                '<think>a<tool_call>{"name": "f", "arguments": {}}</tool_call>',
                '<think>a<tool_call>b</think>c</tool_call>',
                "</tool_call>x",
            ]
        ),
        '<think>\nx\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        "<think>\nand so",
    ],
    "gpt_oss": [
        *(f"<|channel|>final<|message|>{one}{end}" for one in PLAIN_RESPONSES for end in ["<|return|>", "", "<|end|>", "<|return|><|return|>"]),
        "<|channel|>analysis<|message|>2+3<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>",
        "<|channel|>analysis<|message|>2+3<|end|>",
        "<|channel|>analysis<|message|>2+3<|return|>",
        "<|channel|>analysis<|message|>  <|end|><|start|>assistant<|channel|>final<|message|>5<|return|>",
        "<|channel|>commentary<|message|>I'll look.<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1.0, \"b\": \"ü\"}<|call|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|> {} <|call|>",
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{bad<|call|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|><|call|>",
        " to=functions.f<|channel|>commentary<|return|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|><|call|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|><|return|>",
        "<|channel|>final<|message|>a<|return|>b<|call|>",
        "<|channel|>other<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y<|return|>",
        "<|message|>no channel<|return|>",
        "plain<|return|>",
        "<|return|>",
        "",
    ],
}


def part_of(value):
    return {**value, "image": Image.new("RGB", (64, 64))} if value["type"] == "image" else value


def message_of(value):
    message = dict(value)
    if isinstance(message["content"], list):
        message["content"] = [part_of(one) for one in message["content"]]
    if "tool_calls" in message:
        message["tool_calls"] = [base.ToolCall(**one) for one in message["tool_calls"]]
    return message


def packed(numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}H", *numbers)).decode()


class Sequences:
    """Stores each token sequence once, without what it has in common with the one before: most of them are alike."""

    def __init__(self):
        self.places = {}

    def place(self, tokens):
        return self.places.setdefault(tuple(tokens), len(self.places))

    def packed(self):
        last = ()
        rows = []
        for tokens in self.places:
            most = min(len(last), len(tokens))
            start = next((at for at in range(most) if last[at] != tokens[at]), most)
            end = next((at for at in range(most - start) if last[-1 - at] != tokens[-1 - at]), most - start)
            rows.append([start, packed(tokens[start : len(tokens) - end]), end])
            last = tokens
        return rows


def flat(model_input):
    """Returns the tokens, with a mark for every image."""
    return [
        token
        for one in model_input.chunks
        for token in (one.tokens if isinstance(one, tinker.EncodedTextChunk) else [IMAGE_MARK] * one.expected_tokens)
    ]


def reweighted(model_input, weights):
    return weights


def runs(weights):
    """Run-length encodes a list of zeros and ones, starting with zeros."""
    lengths, last = [0], 0
    for weight in weights:
        assert weight in (0, 1)
        if weight != last:
            lengths.append(0)
            last = weight
        lengths[-1] += 1
    return lengths


def outcome(run):
    try:
        return run()
    except (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        return {"error": type(error).__name__}


def of_conversation(renderer, messages, sequences):
    def weighted(example):
        model_input, weights = example
        return [sequences.place(flat(model_input)), runs(reweighted(model_input, weights.tolist()))]

    given = [message_of(one) for one in messages]
    marked = [{**one, "trainable": index % 2 == 1} for index, one in enumerate(given)]
    prompt = lambda **more: sequences.place(flat(renderer.build_generation_prompt(given, **more)))
    supervised = {}
    for mode in base.TrainOnWhat:
        input = marked if mode == "customized" else given
        supervised[str(mode)] = outcome(lambda: weighted(renderer.build_supervised_example(input, mode)))
    return {
        "prompt": outcome(prompt),
        "prefilled": outcome(lambda: prompt(prefill="Sure: ü")),
        "asUser": outcome(lambda: prompt(role="user")),
        "supervised": supervised,
        "split": {
            mode: outcome(lambda: [weighted(one) for one in renderer.build_supervised_examples(given, base.TrainOnWhat(mode))])
            for mode in ["last_assistant_message", "last_assistant_turn", "all_assistant_messages", "all_tokens"]
        },
    }


def of_response(renderer, tokenizer, response):
    tokens = tokenizer.encode(response, add_special_tokens=False)

    def parse():
        message, termination = renderer.parse_response(list(tokens))
        failure = base.classify_parse_failure(message, termination)
        return {
            "message": base.message_to_jsonable(message),
            "termination": str(termination),
            "failure": None if failure is None else str(failure[0]),
        }

    return {"tokens": packed(tokens) if max(tokens, default=0) < 2**16 else "", "parsed": outcome(parse)}


def responses_for(name):
    family = next(family for family in RESPONSES if name.startswith(family))
    return RESPONSES[family]


def of_renderer(name, renderer, tokenizer):
    sequences = Sequences()
    images = IMAGE_CONVERSATIONS if name.startswith(IMAGE_FAMILIES) else {}
    return {
        "extension": renderer.has_extension_property,
        "stop": renderer.get_stop_sequences(),
        "conversations": {key: of_conversation(renderer, messages, sequences) for key, messages in CONVERSATIONS.items()},
        "images": {key: of_conversation(renderer, messages, sequences) for key, messages in images.items()},
        "sequences": sequences.packed(),
        "responses": [of_response(renderer, tokenizer, one) for one in responses_for(name)],
        "tools": [
            outcome(lambda: [base.message_to_jsonable(one) for one in renderer.create_conversation_prefix_with_tools(tools, system)])
            for tools in (TOOLS, TOOLS[:1], [], TYPED)
            for system in ("", "Be kind: ü.")
        ],
    }


def tensor(data):
    return {"dtype": data.dtype, "data": [float(one) for one in data.data], "shape": data.shape}


def chunk(one):
    if isinstance(one, tinker.EncodedTextChunk):
        return list(one.tokens)
    return {"image": base64.b64encode(one.data).decode(), "tokens": one.expected_tokens}


def datum(one):
    return {
        "input": [chunk(piece) for piece in one.model_input.chunks],
        "inputs": {key: tensor(value) for key, value in sorted(one.loss_fn_inputs.items())},
    }


def piece(value):
    if isinstance(value, list):
        return tinker.EncodedTextChunk(tokens=value)
    return tinker.types.ImageChunk(data=value["image"].encode(), format="png", expected_tokens=value["tokens"])


CHUNK = {"image": "not really an image", "tokens": 3}

EXAMPLES = [
    ([[1, 2, 3, 4, 5]], [0, 0, 1, 1, 1]),
    ([[1, 2], [3, 4, 5]], [1, 1, 1, 0, 1]),
    ([[1, 2], CHUNK, [3, 4]], [0, 0, 0, 0, 0, 1, 1]),
    ([[1], CHUNK, [2], CHUNK], [0, 0, 0, 0, 1, 0, 0, 0]),
    ([CHUNK, [7, 8]], [0, 0, 0, 1, 1]),
    ([[1, 2, 3], []], [0, 1, 1]),
    ([[1, 2, 3]], [0, 0, 0]),
    ([[1]], [1]),
    ([CHUNK], [0, 0, 0]),
    ([[1, 2, 3, 4]], [0.5, 0.25, 2, 0.1]),
]

# observation, action, log probabilities, masked
TRAJECTORIES = [
    ([([[1, 2]], [3, 4], [-0.5, -0.25], False)], 1.0),
    ([([[1, 2]], [3, 4], [-0.5, -0.25], False), ([[1, 2, 3, 4], [5, 6]], [7], [-1.5], False)], -0.75),
    ([([[1, 2]], [3], [-0.5], False), ([[1, 3, 3, 5]], [6, 7], [-1, -2], False), ([[1, 3, 3, 5, 6, 7, 8]], [9], [-3], True)], 2.0),
    ([([[1], CHUNK, [2]], [3], [-0.5], False), ([[1], CHUNK, [2, 3, 4]], [5], [-0.125], False)], 0.5),
    ([([[1], CHUNK, [2]], [3], [-0.5], False), ([[1], {**CHUNK, "image": "another"}, [2, 3, 4]], [5], [-0.125], False)], 0.5),
    ([([[1, 2]], [3], [-0.5], True)], 1.0),
    ([([[1, 2]], [3, 4], [-0.5, -0.5], False), ([[1, 2, 3]], [4], [-0.5], False)], 1.0),
    ([], 1.0),
]


def datums():
    from torch import tensor as torch_tensor

    supervised = []
    for chunks, weights in EXAMPLES:
        for max_length in (None, 2, 3, 4, 6, 1):
            for reduction in ("none", "mean"):
                run = lambda: datum(
                    datum_from_model_input_weights(
                        tinker.ModelInput(chunks=[piece(one) for one in chunks]),
                        torch_tensor([float(one) for one in weights]),
                        max_length,
                        reduction,
                    )
                )
                supervised.append({"chunks": chunks, "weights": weights, "maxLength": max_length, "reduction": reduction, "datum": outcome(run)})
    trajectories = []
    for steps, advantage in TRAJECTORIES:
        transitions = [
            Transition(
                ob=tinker.ModelInput(chunks=[piece(one) for one in observation]),
                ac=TokensWithLogprobs(tokens=action, maybe_logprobs=[float(one) for one in logprobs]),
                reward=0.0,
                episode_done=False,
                metrics={"parse_error_masked": 1.0} if masked else {},
            )
            for observation, action, logprobs, masked in steps
        ]
        run = lambda: [datum(one) for one in trajectory_to_data(Trajectory(transitions=transitions, final_ob=tinker.ModelInput(chunks=[])), advantage)]
        trajectories.append({"steps": steps, "advantage": advantage, "datums": outcome(run)})
    return {"supervised": supervised, "trajectories": trajectories}


def models():
    infos = [get_llama_info, get_qwen_info, get_deepseek_info, get_gpt_oss_info, get_moonshot_info, get_zai_info, get_nvidia_info, get_thinkingmachines_info]
    return {f"{of.organization}/{name}": list(of.recommended_renderers) for info in infos for name, of in info().items()}


def write(directory, name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = "".join(f"\\u{ord(c):04x}" if c in "\x7f\u0085\u2028\u2029\ufeff\ufffe\u00a0" else c for c in text)
    (directory / name).write_text(text + "\n", encoding="utf-8")


def main(shapes, directory):
    if tinker_cookbook.__version__ != PINNED:
        sys.exit(f"expected tinker-cookbook {PINNED}, got {tinker_cookbook.__version__}")
    directory.mkdir(parents=True, exist_ok=True)

    write_to = lambda name, value: write(directory, name, value)
    references = {}
    for name, (shape, specials, others, bos, eos) in TOKENIZERS.items():
        library = Tokenizer.from_str((shapes / f"{shape}.tokenizer.json").read_text(encoding="utf-8"))
        library.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in [*specials, *([bos] if bos else [])]])
        library.add_tokens([AddedToken(one, normalized=False) for one in others])
        write_to(f"{name}.tokenizer.json", json.loads(library.to_str()))
        write_to(f"{name}.config.json", {"bos_token": bos, "eos_token": eos})
        references[name] = Reference(library, bos, eos)

    write_to("conversations.json", CONVERSATIONS)
    write_to("images.json", IMAGE_CONVERSATIONS)
    write_to("tools.json", TOOLS)
    write_to("typed.json", TYPED)
    for name, (tokenizer, make) in RENDERERS.items():
        golden = of_renderer(name, make(references[tokenizer]), references[tokenizer])
        write_to(f"{name}.golden.json", {"tokenizer": tokenizer, **golden})
    write_to("datums.json", datums())
    write_to("models.json", models())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
