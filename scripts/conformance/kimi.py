"""Records what `tiktoken` and the vendor's Rust library make of texts with the real vocabulary of Kimi or Inkling.

    python kimi.py <directory to write to> <seed> <count>

The vocabularies are read from the Rust library, which contains them.
"""

import base64
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "goldens"))

import rust_reference as rust
import tiktoken
from patterns import KIMI_PATTERN, O200K_PATTERN

WORDS = ["the", "Hello", "WORLD", "don't", "I'LL", "camelCase", "日本語", "漢字かな", "中文", "ß", "Ångström", "é", "🙂", "👩‍👧", "123", "4567", "٣٤", "x1y2", "שלום", "ไทย", "हिन्दी", "ǅ", "ʰ", "々〇", "𠀀", "﷽", "\u0301"]
GLUE = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "", "", ".", "...", "/", "//", "==", "-", "'", "_", "\n\n\n", " \n ", "<|im_end|>", "[EOS]", "\x00", "\x1c", "\u200b", "\ufeff"]
RUNS = ["a", "ab", "aba", " ", "\n", "=", "-", "ha", "日", "漢", "0", "é", "🙂", "A", "\t ", ".", "aA"]


def text(random):
    kind = random.random()
    if kind < 0.2:
        return random.choice(RUNS) * random.randint(1, 60)
    if kind < 0.3:
        return "".join(random.choice(RUNS) for _ in range(random.randint(1, 40)))
    if kind < 0.4:
        return "".join(chr(random.choice([random.randint(0, 0x2FF), random.randint(0x300, 0xD7FF), random.randint(0xE000, 0x323AF)])) for _ in range(random.randint(1, 20)))
    return "".join(random.choice(WORDS) + random.choice(GLUE) for _ in range(random.randint(0, 25)))


def main(directory, seed, count):
    directory.mkdir(parents=True, exist_ok=True)
    for name, tokenizer, pattern in [
        ("Kimi-K2-Thinking", rust.tokenizers.KimiK2ThinkingTokenizer(), KIMI_PATTERN),
        ("Kimi-K2.5", rust.tokenizers.KimiK25Tokenizer(), KIMI_PATTERN),
        ("Kimi-K2.6", rust.tokenizers.KimiK26Tokenizer(), KIMI_PATTERN),
        ("Inkling", rust.tokenizers.O200kBaseChatTokenizer(), O200K_PATTERN),
    ]:
        specials = {tokenizer.encode_special(one): one for one in tokenizer.special_tokens()}
        first = min(specials)
        ranks = {bytes(tokenizer.decode_bytes([id])): id for id in range(first)}
        assert len(ranks) == first
        spelled = {tokenizer.decode([id]): id for id in specials}
        library = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=spelled)
        path = directory / name
        path.mkdir(exist_ok=True)
        (path / "tiktoken.model").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
        added = {str(id): {"content": one, "special": True} for one, id in spelled.items()}
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added}))
        rows = []
        different = 0
        generator = random.Random(seed)
        for _ in range(count):
            one = text(generator)
            plain = library.encode_ordinary(one)
            different += plain != list(tokenizer.encode_ordinary(one))
            rows.append({"text": one, "plain": plain, "special": library.encode(one, allowed_special="all")})
        (path / "texts.json").write_text(json.dumps(rows))
        print(f"{name}: {first} tokens, {count} texts; tiktoken and the Rust library differ in {different}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
