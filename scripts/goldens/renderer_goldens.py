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
from tinker_cookbook.renderers import base
from tinker_cookbook.renderers.gpt_oss import GptOssRenderer
from tinker_cookbook.renderers.llama3 import Llama3Renderer
from tinker_cookbook.renderers.qwen3 import Qwen3DisableThinkingRenderer, Qwen3InstructRenderer, Qwen3Renderer
from tinker_cookbook.renderers.role_colon import RoleColonRenderer
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.types import Trajectory, Transition
from tinker_cookbook.supervised.common import datum_from_model_input_weights

PINNED = "0.5.8"
DATE = "2026-01-02"

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


class Reference:
    """Wraps the tokenizers library with the methods that the renderers call."""

    def __init__(self, library, bos, eos):
        self.library = library
        self.bos_token = bos
        self.eos_token_id = library.token_to_id(eos)

    def encode(self, text, add_special_tokens=True, split_special_tokens=False):
        self.library.encode_special_tokens = split_special_tokens
        return self.library.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, tokens):
        return self.library.decode(tokens, skip_special_tokens=False)


HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"]

# shape, special tokens, others, first token, last token
TOKENIZERS = {
    "llama3": ("llama3", ["<|eom_id|>", "<|python_tag|>"], [], "<|begin_of_text|>", "<|eot_id|>"),
    "qwen3": ("qwen", ["<|vision_start|>", "<|vision_end|>"], ["<tool_response>", "</tool_response>"], None, "<|im_end|>"),
    "gpt_oss": ("o200k", HARMONY, [], "<|startoftext|>", "<|return|>"),
}

RENDERERS = {
    "role_colon": ("llama3", lambda t: RoleColonRenderer(t)),
    "role_colon_without_bos": ("qwen3", lambda t: RoleColonRenderer(t)),
    "llama3": ("llama3", lambda t: Llama3Renderer(t)),
    "qwen3": ("qwen3", lambda t: Qwen3Renderer(t)),
    "qwen3_keeping": ("qwen3", lambda t: Qwen3Renderer(t, strip_thinking_from_history=False)),
    "qwen3_disable_thinking": ("qwen3", lambda t: Qwen3DisableThinkingRenderer(t)),
    "qwen3_instruct": ("qwen3", lambda t: Qwen3InstructRenderer(t)),
    "gpt_oss_no_sysprompt": ("gpt_oss", lambda t: GptOssRenderer(t)),
    **{
        f"gpt_oss_{effort}_reasoning": (
            "gpt_oss",
            lambda t, effort=effort: GptOssRenderer(t, use_system_prompt=True, reasoning_effort=effort, current_date=DATE),
        )
        for effort in ("low", "medium", "high")
    },
}


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
    "two assistants": [QUESTION, ANSWER, said("assistant", "And it is odd.")],
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

PLAIN_RESPONSES = ["The sum is 5.", "", " A text.\n\n", ODD, "\n\nleading"]

RESPONSES = {
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


def message_of(value):
    message = dict(value)
    if "tool_calls" in message:
        message["tool_calls"] = [base.ToolCall(**one) for one in message["tool_calls"]]
    return message


def packed(numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}H", *numbers)).decode()


class Sequences:
    """Stores each token sequence once: most of them repeat."""

    def __init__(self):
        self.places = {}

    def place(self, tokens):
        return self.places.setdefault(packed(tokens), len(self.places))


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
    except (AssertionError, IndexError, NotImplementedError, ValueError) as error:
        return {"error": type(error).__name__}


def of_conversation(renderer, messages, sequences):
    def weighted(example):
        model_input, weights = example
        return [sequences.place(model_input.to_ints()), runs(weights.tolist())]

    given = [message_of(one) for one in messages]
    marked = [{**one, "trainable": index % 2 == 1} for index, one in enumerate(given)]
    prompt = lambda **more: sequences.place(renderer.build_generation_prompt(given, **more).to_ints())
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

    return {"tokens": packed(tokens), "parsed": outcome(parse)}


def responses_for(name):
    family = next(family for family in RESPONSES if name.startswith(family))
    return RESPONSES[family]


def of_renderer(name, renderer, tokenizer):
    sequences = Sequences()
    return {
        "extension": renderer.has_extension_property,
        "stop": renderer.get_stop_sequences(),
        "conversations": {key: of_conversation(renderer, messages, sequences) for key, messages in CONVERSATIONS.items()},
        "sequences": list(sequences.places),
        "responses": [of_response(renderer, tokenizer, one) for one in responses_for(name)],
        "tools": [
            outcome(lambda: [base.message_to_jsonable(one) for one in renderer.create_conversation_prefix_with_tools(tools, system)])
            for tools in (TOOLS, TOOLS[:1], [])
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


IMAGE = {"image": "not really an image", "tokens": 3}

EXAMPLES = [
    ([[1, 2, 3, 4, 5]], [0, 0, 1, 1, 1]),
    ([[1, 2], [3, 4, 5]], [1, 1, 1, 0, 1]),
    ([[1, 2], IMAGE, [3, 4]], [0, 0, 0, 0, 0, 1, 1]),
    ([[1], IMAGE, [2], IMAGE], [0, 0, 0, 0, 1, 0, 0, 0]),
    ([IMAGE, [7, 8]], [0, 0, 0, 1, 1]),
    ([[1, 2, 3], []], [0, 1, 1]),
    ([[1, 2, 3]], [0, 0, 0]),
    ([[1]], [1]),
    ([IMAGE], [0, 0, 0]),
    ([[1, 2, 3, 4]], [0.5, 0.25, 2, 0.1]),
]

# observation, action, log probabilities, masked
TRAJECTORIES = [
    ([([[1, 2]], [3, 4], [-0.5, -0.25], False)], 1.0),
    ([([[1, 2]], [3, 4], [-0.5, -0.25], False), ([[1, 2, 3, 4], [5, 6]], [7], [-1.5], False)], -0.75),
    ([([[1, 2]], [3], [-0.5], False), ([[1, 3, 3, 5]], [6, 7], [-1, -2], False), ([[1, 3, 3, 5, 6, 7, 8]], [9], [-3], True)], 2.0),
    ([([[1], IMAGE, [2]], [3], [-0.5], False), ([[1], IMAGE, [2, 3, 4]], [5], [-0.125], False)], 0.5),
    ([([[1], IMAGE, [2]], [3], [-0.5], False), ([[1], {**IMAGE, "image": "another"}, [2, 3, 4]], [5], [-0.125], False)], 0.5),
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


def main(shapes, directory):
    if tinker_cookbook.__version__ != PINNED:
        sys.exit(f"expected tinker-cookbook {PINNED}, got {tinker_cookbook.__version__}")
    directory.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text = "".join(f"\\u{ord(c):04x}" if c in "\x7f\u0085\u2028\u2029\ufeff\ufffe\u00a0" else c for c in text)
        (directory / name).write_text(text + "\n", encoding="utf-8")

    references = {}
    for name, (shape, specials, others, bos, eos) in TOKENIZERS.items():
        library = Tokenizer.from_str((shapes / f"{shape}.tokenizer.json").read_text(encoding="utf-8"))
        library.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in [*specials, *([bos] if bos else [])]])
        library.add_tokens([AddedToken(one, normalized=False) for one in others])
        write(f"{name}.tokenizer.json", json.loads(library.to_str()))
        write(f"{name}.config.json", {"bos_token": bos, "eos_token": eos})
        references[name] = Reference(library, bos, eos)

    write("conversations.json", CONVERSATIONS)
    write("tools.json", TOOLS)
    for name, (tokenizer, make) in RENDERERS.items():
        golden = of_renderer(name, make(references[tokenizer]), references[tokenizer])
        write(f"{name}.golden.json", {"tokenizer": tokenizer, **golden})
    write("datums.json", datums())
    write("models.json", models())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
