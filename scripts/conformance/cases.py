"""Renders random conversations with the official cookbook and with the vendor's Rust library, for every renderer.

    python cases.py <directory of the renderer goldens> <directory to write to> <seed> <count>

The cookbook uses the small tokenizers of the goldens: its tokens, weights and errors are recorded. The Rust library has
its own tokenizers: its texts are recorded, with special tokens as they are written.
"""

import base64
import io
import json
import random
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "goldens"))

import renderer_goldens as goldens
import rust_reference as rust
from PIL import Image
from tokenizers import Tokenizer

from tinker_cookbook.renderers import base
from tinker_cookbook.renderers.tml_v0 import TmlV0Renderer
from tinker_cookbook.tokenizer_utils import TmlRenderersTokenizerAdapter

TEXTS = [
    *("Hello!", "What is 2 + 3?", "", " ", "\n", "\n\nindented\n", "  spaces  ", "日本語 👩‍👧 é", "tab\tand\r\nnewline", "a" * 40),
    *("<think>", "</think>", "<think>inside</think>after", "<think>\nx\n</think>\n\ny", "x</think>y"),
    *("<|im_end|>", "<|im_start|>user", "<|end|>", "<|user|>", "<｜User｜>", "<｜end▁of▁sentence｜>", "<|eot_id|>", "[gMASK]", "<|end_message|>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "User: hi", "\n\nUser:", "{\"a\": 1}", "｜DSML｜", "\\n", "'", "\u00a0\u3000\u001c", "Go.\n\n", "###"),
]
WORDS = ["a", "the", "sum", "five", "Zürich", "1", "42", ".", "!", "\n", " ", "?"]
KEYS = ["city", "a", "b", "ü", "1", "long key", "x_y"]
MODES = [str(mode) for mode in base.TrainOnWhat]
SIZES = [(1, 1), (64, 64), (100, 50), (640, 480), (37, 1200), (1920, 1080)]


def text(r):
    if r.tame:
        return " ".join(r.choice(WORDS[:7]) for _ in range(r.randint(1, 8)))
    if r.random() < 0.35:
        return r.choice(TEXTS)
    return "".join(r.choice(WORDS) + r.choice([" ", ""]) for _ in range(r.randint(0, 12)))


def value(r, depth=0):
    kind = r.randint(0, 9 if depth < 2 else 7)
    if kind <= 2:
        return text(r)
    if kind <= 7:
        return r.choice([0, 1, -5, 10**20, 2.0, 0.5, 1e16, 1e-7, True, False, None])
    if kind == 8:
        return [value(r, depth + 1) for _ in range(r.randint(0, 3))]
    return {r.choice(KEYS): value(r, depth + 1) for _ in range(r.randint(0, 3))}


def arguments(r):
    given = {r.choice(KEYS): value(r) for _ in range(r.randint(0, 4))}
    if r.tame:
        return json.dumps(given, ensure_ascii=False)
    return json.dumps(given, ensure_ascii=r.random() < 0.5, separators=r.choice([(",", ":"), (", ", ": ")]))


def image(r):
    return {"type": "image", "size": r.choice(SIZES)}


def content(r, thinks, images):
    kind = r.random()
    if kind < (0.9 if r.tame else 0.7) and not thinks:
        return text(r)
    parts = [goldens.text(text(r)) for _ in range(1 if r.tame else r.choice([0, 1, 1, 1, 2, 3]))]
    if thinks:
        parts.insert(0 if r.tame or r.random() < 0.8 else r.randint(0, len(parts)), goldens.thinking(text(r)))
    if images and r.random() < 0.4:
        for _ in range(r.randint(1, 3)):
            parts.insert(r.randint(0, len(parts)), image(r))
    return parts


def conversation(r, images):
    messages = []
    if r.random() < 0.5:
        messages.append(goldens.said("system", text(r) if r.tame or r.random() < 0.8 else [goldens.text(text(r)), goldens.text(text(r))]))
    count = 0
    for _ in range(r.choice([0, 1, 1, 2, 2, 3])):
        if r.tame or r.random() < 0.95:
            messages.append(goldens.said("user", content(r, False, images)))
        for _ in range(1 if r.tame else r.choice([0, 1, 1, 1, 2])):
            answer = goldens.said("assistant", content(r, r.random() < 0.45, False))
            messages.append(answer)
            if r.random() < 0.3:
                calls = [goldens.call(r.choice(["f", "get_weather"]), arguments(r), f"call_{count + i}" if r.tame or r.random() < 0.8 else None) for i in range(r.randint(1, 3))]
                count += 3
                answer["tool_calls"] = calls
                results = [goldens.said("tool", content(r, False, images), name=one["function"]["name"], tool_call_id=one["id"] or "none") for one in calls]
                if r.tame:
                    messages += [*results, goldens.said("assistant", content(r, r.random() < 0.45, False))]
                    continue
                if r.random() < 0.4:
                    r.shuffle(results)
                messages += results[: r.choice([1, 2, 3])] if r.random() < 0.9 else []
        if not r.tame and r.random() < 0.05:
            messages.append(goldens.said("system", text(r)))
    if r.tame:
        messages.append(goldens.said("user", text(r)))
    return messages


def tools(r):
    return r.sample([*goldens.TOOLS, goldens.TYPED[0], goldens.DECLARED], r.randint(1, 2))


def case(seed, index, images):
    r = random.Random(f"{seed} {index} {images}")
    # Half of the conversations are ordinary ones, the others are empty, odd or hostile.
    r.tame = index % 2 == 0
    messages = conversation(r, images)
    return {"messages": messages, "tools": tools(r) if r.random() < 0.25 else None, "mode": r.choice(MODES)}


class Processor:
    """Counts images as the Rust library does, so that the sizes of both can be compared."""

    merge_size = 2

    def __init__(self, count):
        self.count = count

    def get_number_of_image_patches(self, height, width, images_kwargs):
        return 4 * self.count(width, height)


@cache
def picture(size):
    file = io.BytesIO()
    Image.new("RGB", size).save(file, format="JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def counter(renderer):
    known = {}

    def count(width, height):
        if (width, height) not in known:
            parts = [{"type": "image", "size": (width, height)}]
            spans = renderer.render_for_completion(openai([goldens.said("user", parts)]))[0]
            (known[(width, height)],) = [one.span.num_tokens for one in spans if hasattr(one.span, "num_tokens")]
        return known[(width, height)]

    return count


def openai(messages):
    def part(one):
        if one["type"] != "image":
            return one
        return {"type": "image_url", "image_url": {"url": picture(tuple(one["size"]))}}

    whole = [{**one, "content": [part(p) for p in one["content"]] if isinstance(one["content"], list) else one["content"]} for one in messages]
    return rust.chat.OpenAIMessage.from_oss_messages(whole)


R = rust.renderers
RUST = {
    "qwen3": lambda: R.Qwen3(),
    "qwen3_disable_thinking": lambda: R.Qwen3.disable_thinking(),
    "qwen3_instruct": lambda: R.Qwen3.instruct(),
    "qwen3_vl": lambda: R.Qwen3.vision(),
    "qwen3_vl_instruct": lambda: R.Qwen3.vision_instruct(),
    "qwen3_5": lambda: R.Qwen35(),
    "qwen3_5_disable_thinking": lambda: R.Qwen35.disable_thinking(),
    "qwen3_5_preserve_thinking": lambda: R.Qwen35(strip_thinking_from_history=False),
    "qwen3_8_xhigh_reasoning": lambda: R.Qwen38.xhigh(),
    "qwen3_8_medium_reasoning": lambda: R.Qwen38.medium(),
    "qwen3_8_low_reasoning": lambda: R.Qwen38.low(),
    "qwen3_8_disable_thinking": lambda: R.Qwen38.disable_thinking(),
    "nemotron3": lambda: R.Nemotron3(),
    "nemotron3_low_thinking": lambda: R.Nemotron3.low(),
    "nemotron3_disable_thinking": lambda: R.Nemotron3.disable_thinking(),
    "nemotron3_preserve_thinking": lambda: R.Nemotron3.preserve_thinking_history(),
    "nemotron3_ultra": lambda: R.Nemotron3.ultra(),
    "nemotron3_ultra_disable_thinking": lambda: R.Nemotron3.ultra_disable_thinking(),
    "nemotron3_ultra_medium_thinking": lambda: R.Nemotron3.ultra_medium(),
    "nemotron3_ultra_preserve_thinking": lambda: R.Nemotron3.ultra_preserve_thinking_history(),
    "glm5_3_max_reasoning": lambda: R.Glm53(clear_thinking=False),
    "glm5_3_low_reasoning": lambda: R.Glm53.low(clear_thinking=False),
    "glm5_3_high_reasoning": lambda: R.Glm53.high(clear_thinking=False),
    "deepseekv3": lambda: R.DeepSeekV31(),
    "deepseekv3_disable_thinking": lambda: R.DeepSeekV31(),
    "deepseekv3_thinking": lambda: R.DeepSeekV31.thinking(),
    "deepseekv4_1": lambda: R.DeepSeekV41(),
    "deepseekv4_1_low_reasoning": lambda: R.DeepSeekV41(reasoning_effort="low"),
    "deepseekv4_1_max_reasoning": lambda: R.DeepSeekV41(reasoning_effort="max"),
    "deepseekv4_1_disable_thinking": lambda: R.DeepSeekV41.chat(),
    "kimi_k2": lambda: R.KimiK2(),
    "kimi_k25": lambda: R.KimiK25(),
    "kimi_k25_disable_thinking": lambda: R.KimiK25.disable_thinking(),
    "kimi_k26": lambda: R.KimiK25(),
    "kimi_k26_disable_thinking": lambda: R.KimiK25.disable_thinking(),
    "kimi_k26_preserve_thinking": lambda: R.KimiK25.preserve_thinking_history(),
    "gpt_oss_low_reasoning": lambda: R.GptOss.low(current_date=goldens.DATE),
    "gpt_oss_medium_reasoning": lambda: R.GptOss.medium(current_date=goldens.DATE),
    "gpt_oss_high_reasoning": lambda: R.GptOss.high(current_date=goldens.DATE),
    "tml_v0": lambda: rust.v0.Renderer(rust.tokenizers.O200kBaseChatTokenizer()),
}

PROCESSORS = {"kimi": lambda: R.KimiK25(), "qwen3": lambda: R.Qwen3.vision()}


def message_of(value):
    message = dict(value)
    if isinstance(message["content"], list):
        message["content"] = [{**p, "image": Image.new("RGB", tuple(p["size"]))} if p["type"] == "image" else p for p in message["content"]]
    if "tool_calls" in message:
        message["tool_calls"] = [base.ToolCall(**one) for one in message["tool_calls"]]
    return message


def prefixed(renderer, row):
    """Declares the tools of a case."""
    given = [message_of(one) for one in row["messages"]]
    if row["tools"] is None:
        return given
    system = given[0] if given and given[0]["role"] == "system" and isinstance(given[0]["content"], str) else None
    prefix = renderer.create_conversation_prefix_with_tools(row["tools"], system["content"] if system else "")
    return [*prefix, *given[1 if system else 0 :]]


def attempt(run):
    try:
        return run()
    except Exception as error:
        return {"error": type(error).__name__}


def of_cookbook(renderer, row):
    messages = attempt(lambda: prefixed(renderer, row))
    if isinstance(messages, dict):
        return {"prompt": messages, "example": messages}
    mode = row["mode"]
    marked = [{**one, "trainable": one["role"] == "assistant"} for one in messages] if mode == "customized" else messages

    def example():
        model_input, weights = renderer.build_supervised_example(marked, base.TrainOnWhat(mode))
        weights = goldens.reweighted(model_input, weights.tolist())
        return [goldens.flat(model_input), goldens.runs(weights)]

    return {"prompt": attempt(lambda: goldens.flat(renderer.build_generation_prompt(messages))), "example": attempt(example)}


def of_rust(renderer, row):
    messages = list(row["messages"])
    if row["tools"] is not None:
        content = json.dumps([{"type": "function", "function": tool} for tool in row["tools"]])
        first = 1 if messages and messages[0]["role"] == "system" else 0
        messages.insert(first, goldens.said("tool_declare", content))

    def said():
        given = openai(messages)
        spans = (renderer.render_for_completion_with_effort(given, 0.9) if hasattr(renderer, "render_for_completion_with_effort") else renderer.render_for_completion(given))[0]
        pieces = [f"\ufffc{one.span.num_tokens}\ufffc" if hasattr(one.span, "num_tokens") else renderer.tokenizer.decode(list(one.span.tokens)) for one in spans]
        return {"text": "".join(pieces)}

    return attempt(said)


def flat(model_input):
    """Returns the tokens; an image is a mark and its number of tokens."""
    return [token for one in model_input.chunks for token in (one.tokens if hasattr(one, "tokens") else [goldens.IMAGE_MARK, one.expected_tokens])]


def main(tokenizers, directory, seed, count):
    directory.mkdir(parents=True, exist_ok=True)
    goldens.flat = flat
    names = [name for name in goldens.RENDERERS if name not in ("role_colon_without_bos", "qwen3_keeping")]
    for name in [*names, "tml_v0"]:
        make_rust = RUST.get(name)
        native = make_rust() if make_rust else None
        if name == "tml_v0":
            import tml_goldens

            adapter = TmlRenderersTokenizerAdapter("thinkingmachines/Inkling")
            small = tml_goldens.Small(Tokenizer.from_file(str(tokenizers / "tml.tokenizer.json")), rust.Pieces(adapter.tml_tokenizer))
            def mapped(model_input):
                return [id for one in model_input.chunks for id in (small.of(one.tokens) if hasattr(one, "tokens") else [goldens.IMAGE_MARK, one.expected_tokens])]

            def reweighted(model_input, weights):
                all, at = [], 0
                for one in model_input.chunks:
                    length = one.length
                    all += small.weights(one.tokens, weights[at : at + length]) if hasattr(one, "tokens") else weights[at : at + length]
                    at += length
                return all

            goldens.flat, goldens.reweighted = mapped, reweighted
            renderer, tokenizer = TmlV0Renderer(adapter), "tml"
        else:
            tokenizer, make = goldens.RENDERERS[name]
            _, _, _, bos, eos = goldens.TOKENIZERS[tokenizer]
            reference = goldens.Reference(Tokenizer.from_file(str(tokenizers / f"{tokenizer}.tokenizer.json")), bos, eos)
            renderer = make(reference)
            counts = next((make() for prefix, make in PROCESSORS.items() if name.startswith(prefix)), None)
            if hasattr(renderer, "image_processor"):
                # The library knows no images of Nemotron; the caller has to give their number of tokens.
                renderer.image_processor = Processor((lambda width, height: 64) if counts is None else counter(counts))
        images = name.startswith((*goldens.IMAGE_FAMILIES, "tml"))
        with open(directory / f"{name}.jsonl", "w", encoding="utf-8") as file:
            file.write(json.dumps({"renderer": name, "tokenizer": tokenizer, "rust": native is not None, "date": goldens.DATE}) + "\n")
            for index in range(count):
                row = case(seed, index, images)
                row["cookbook"] = of_cookbook(renderer, row)
                if native is not None:
                    row["rust"] = of_rust(native, row)
                file.write(json.dumps(row) + "\n")
        print(f"{name}: {count} cases", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
