"""Records the output of the official cookbook's renderer for Inkling, which the vendor's Rust library does the work for.

    python tml_goldens.py <directory of the renderer goldens>

The library knows only one tokenizer, with 200,000 tokens. Its sequences are split into special tokens and texts, and
written as those of a small tokenizer with the same special tokens.
"""

import re
import sys
from pathlib import Path

import renderer_goldens as goldens
import rust_reference as rust
from tokenizers import AddedToken, Tokenizer

from tinker_cookbook.renderers.tml_v0 import TmlV0Renderer
from tinker_cookbook.tokenizer_utils import TmlRenderersTokenizerAdapter

END = "<|end_message|>"
STOP = "<|content_model_end_sampling|>"
MODEL = "<|message_model|>"
TEXT = f"{MODEL}<|content_text|>"
THOUGHT = f"{MODEL}<|content_thinking|>"
CALL = "<|content_invoke_tool_json|>"

RESPONSES = [
    *(f"{TEXT}{one}{END}{end}" for one in goldens.PLAIN_RESPONSES for end in [STOP, "", STOP + STOP, STOP + "more"]),
    f"{THOUGHT}hm{END}{TEXT}hi{END}{STOP}",
    f"{TEXT}a{END}{TEXT}b{END}{STOP}",
    f"{TEXT}hi",
    f"{TEXT}hi{STOP}",
    "",
    STOP,
    f"hi{END}{STOP}",
    f"<|content_text|>hi{END}{STOP}",
    f"{MODEL}hi{END}{STOP}",
    f"{MODEL}bob<|content_text|>hi{END}{STOP}",
    f"{TEXT}a<|content_text|>b{END}{STOP}",
    f"{TEXT}<|end{END}{STOP}",
    f"{MODEL}<|content_xml|>hi{END}{STOP}",
    f"{MODEL}<|content_tool_error|>hi{END}{STOP}",
    f"{THOUGHT}{END}{TEXT}a{END}{STOP}",
    f"{TEXT}a{END}{THOUGHT}b{END}{STOP}",
    f'{MODEL}f{CALL}{{"name":"f","args":{{"b":1.0,"a":"ü"}}}}{END}{STOP}',
    f'{TEXT}go{END}{MODEL}f{CALL}{{"name":"f","args":{{}}}}{END}{MODEL}g{CALL}{{"name":"g","args":{{"x":[1]}}}}{END}{TEXT}after{END}{STOP}',
    f'{MODEL}{CALL}{{"name":"f","args":{{"a":1e2,"n":18446744073709551616,"b":{{"z":1,"y":2}}}}}}{END}{STOP}',
    *(
        f"{MODEL}f{CALL}{one}{END}{STOP}"
        for one in ['{"name":"f","args":{}', '{"name":"g","args":{}}', '{"args":{}}', "[1]", '{"name":"f","args":[]}', '{"name":"f"}', '{"name":"f","args":{},"id":3}', "", '{"name":"f","args":{"a":1e400}}']
    ),
    f"{MODEL}{END}{STOP}",
    MODEL,
]


class Small:
    """Converts sequences of the real tokenizer to those of the small one."""

    def __init__(self, library, pieces):
        self.library = library
        self.pieces = pieces
        self.ids = {name: id for id, name in pieces.specials.items()}

    def text(self, text):
        self.library.encode_special_tokens = True
        return self.library.encode(text, add_special_tokens=False).ids

    def of(self, tokens):
        return [
            id
            for piece in self.pieces.of(tokens)
            for id in ([self.library.token_to_id(piece["special"])] if "special" in piece else self.text(piece["text"]))
        ]

    def weights(self, tokens, weights):
        """Gives the tokens of every piece the weight that the real ones have."""
        all = []
        at = 0
        for piece in self.pieces.of(tokens):
            count = 1 if "special" in piece else len(self.pieces.tokenizer.encode_ordinary(piece["text"]))
            (weight,) = set(weights[at : at + count])
            all += [weight] * (1 if "special" in piece else len(self.text(piece["text"])))
            at += count
        return all

    def real(self, text):
        parts = re.split(r"(<\|\w+\|>)", text)
        return [id for part in parts for id in ([self.ids[part]] if part in self.ids else self.pieces.tokenizer.encode_ordinary(part))]


def main(directory):
    adapter = TmlRenderersTokenizerAdapter("thinkingmachines/Inkling")
    pieces = rust.Pieces(adapter.tml_tokenizer)
    shape = (directory.parent / "o200k.tokenizer.json").read_text(encoding="utf-8")
    library = Tokenizer.from_str(shape)
    names = sorted(name for name in pieces.specials.values() if "unused" not in name)
    library.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in names])
    small = Small(library, pieces)
    renderer = TmlV0Renderer(adapter)
    goldens.flat = lambda model_input: small.of(model_input.to_ints())
    goldens.reweighted = lambda model_input, weights: small.weights(model_input.to_ints(), weights)
    goldens.IMAGE_CONVERSATIONS = {}
    goldens.RESPONSES = {"tml_v0": []}
    golden = goldens.of_renderer("tml_v0", renderer, None)
    responses = [
        {**goldens.of_response(renderer, Real(small), one), "tokens": goldens.packed(small.of(small.real(one)))} for one in RESPONSES
    ]
    stop = [library.token_to_id(pieces.specials[one]) for one in golden["stop"]]
    write = lambda name, value: goldens.write(directory, name, value)
    write("tml.tokenizer.json", goldens.json.loads(library.to_str()))
    write("tml.config.json", {"bos_token": None, "eos_token": "<|endoftext|>"})
    write("tml_v0.golden.json", {"tokenizer": "tml", **golden, "stop": stop, "responses": responses})


class Real:
    def __init__(self, small):
        self.small = small

    def encode(self, text, add_special_tokens):
        return self.small.real(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
