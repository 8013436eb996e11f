"""Records what `tiktoken` makes of texts, with a small vocabulary in the structure of Kimi's.

    python tiktoken_goldens.py <directory of the tokenizer goldens>
"""

import base64
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "conformance"))

import tiktoken
from patterns import KIMI_PATTERN
from renderer_goldens import packed, write

SPECIALS = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<think>", "</think>"]


def bytes_by_letter():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {**{chr(byte): byte for byte in visible}, **{chr(256 + index): byte for index, byte in enumerate(hidden)}}


def main(directory):
    letters = bytes_by_letter()
    vocabulary = json.loads((directory / "o200k.tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    known = [bytes(letters[one] for one in token) for token in sorted(vocabulary, key=vocabulary.get) if all(one in letters for one in token)]
    tokens = list(dict.fromkeys([*(bytes([byte]) for byte in range(256)), *known, *(b" " * n for n in (2, 3, 4, 8)), *(b"a" * n for n in (2, 3, 4)), b"abab"]))
    ranks = {token: rank for rank, token in enumerate(tokens)}
    specials = {name: len(ranks) + index for index, name in enumerate(SPECIALS)}
    reserved = {f"<|reserved_token_{id}|>": id for id in range(len(ranks) + len(specials), len(ranks) + 256)}
    library = tiktoken.Encoding("small", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens={**specials, **reserved})
    texts = json.loads((directory / "texts.json").read_text(encoding="utf-8"))[::3]
    texts += ["a" * n for n in range(1, 30)] + ["ab" * n for n in range(1, 20)] + [" " * n + "x" for n in range(1, 20)]
    texts += ["漢字かなABC's漢", "々〇AbcÀé中'LL", "𠀀x\u0301", "<|im_end|>[EOS]<|reserved_token_%d|><think>" % (len(ranks) + 20)]
    golden = {
        "ranks": "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()),
        "config": json.dumps({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {str(id): {"content": name, "special": True} for name, id in specials.items()}}),
        "texts": texts,
        "plain": [packed(library.encode_ordinary(one)) for one in texts],
        "special": [packed(library.encode(one, allowed_special="all")) for one in texts],
    }
    write(directory, "tiktoken.golden.json", golden)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
