"""Trains small tokenizers of common kinds and records how the reference library encodes many texts.

    python tokenizer_goldens.py <directory>

All random data comes from one generator with a fixed seed, so that two runs write the same bytes.
"""

import base64
import copy
import json
import os
import struct
import sys
from pathlib import Path

# Single-threaded: floating-point sums must be added in a fixed order.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PINNED = "0.23.2"
TEXTS = 2200
SALADS = 2000
CLOSE_UPS = 200


class Chance:
    """A Lehmer generator: its numbers are the same in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = self.state * 48271 % 2147483647
        return self.state % n

    def pick(self, items):
        return items[self.below(len(items))]


ENGLISH = """The quick brown fox jumps over the lazy dog, and then it sleeps until morning. We didn't know what she'd said,
but they're sure it's fine: he'll come, I've seen him, and I'm glad. Training a model takes many small steps; every step
changes the weights a little. What is the answer to the question? The answer is 42. A token is a piece of a word, a word,
or several words together. Please write a function that returns the sum of two numbers. Nothing is as useful as a test
that fails when it should. In the beginning there was a list, and the list was empty. People who wait for each other in a
circle wait for ever. The user asked for help, and the assistant answered politely. It wasn't raining yesterday; it won't
rain tomorrow. Some letters are large and SOME ARE VERY LARGE. Numbers like 3.14159, 2024, 1,000,000 and 0xFF are common.
""".replace("\n", " ")

CODE = [
    "def add(a, b):\n    return a + b\n",
    "for (let i = 0; i < n; i++) {\n\tconsole.log(`${i}: ${items[i]}`);\n}\n",
    "const f = async <T>(x: T): Promise<T> => await x ?? null;",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "<div class=\"row\"><a href='https://example.org/?q=1&r=2#top'>link</a></div>",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 1 << 4); return 0; }",
    "{\"name\": \"x\", \"values\": [1, 2.5, -3e10, null, true]}",
    "$ git commit -m 'first' && git push --force-with-lease",
    "\\begin{equation} \\sum_{i=0}^{n} x_i^2 \\end{equation}",
    "    if not self._done:\n        raise ValueError(f\"{self!r} isn't done\")\n\n\n",
]

SENTENCES = [
    "Der schnelle Fuchs springt über den müden Hund, und später schläft er.",
    "Où est passé l'été ? Il a plu à Noël, ça s'est gâté.",
    "El niño comió piñas y ¿quién sabe cuántas más? ¡Muchas!",
    "Zażółć gęślą jaźń, powiedział Łukasz.",
    "Быстрая лиса прыгает через ленивую собаку. Что делать?",
    "Η γρήγορη αλεπού πηδάει πάνω από τον σκύλο.",
    "השועל המהיר קופץ מעל הכלב העצלן.",
    "الثعلب السريع يقفز فوق الكلب الكسول، ثم ينام.",
    "तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "দ্রুত শিয়াল অলস কুকুরের উপর লাফ দেয়।",
    "விரைவான நரி சோம்பேறி நாயின் மேல் குதிக்கிறது.",
    "สุนัขจิ้งจอกกระโดดข้ามสุนัขขี้เกียจ",
    "敏捷的狐狸跳过了懒狗。你好，世界！今天天气很好。",
    "素早い狐がのろまな犬を飛び越える。カタカナとひらがな、ﾊﾝｶｸ。",
    "빠른 여우가 게으른 개를 뛰어넘는다. 안녕하세요!",
    "Con cáo nhanh nhẹn nhảy qua con chó lười biếng.",
    "Hızlı tilki İstanbul'da tembel köpeğin üstünden atladı, ışık söndü.",
    "სწრაფი მელა ზარმაც ძაღლს ახტება.",
    "Արագ աղվեսը ցատկում է ծույլ շան վրայով։",
    "ፈጣኑ ቀበሮ ሰነፉን ውሻ ዘለለ።",
]

EMOJI = [
    "😀", "🎉", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "❤️", "🧑🏿‍🚀", "☃", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👨‍💻", "♀️", "🫠", "🪿", "⌚︎",
]

ODD = [
    "e\u0301", "a\u0300\u0301\u0302", "\u1100\u1161\u11a8", "ﬁ", "Ⅳ", "①②③", "½", "Å", "\u212b", "ſ", "'ſ", "ß", "ẞ", "İ", "ı", "Ǆ", "ﷺ",
    "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\U000f0000", "\u0378",
    "\u20ac", "\u20c1", "\u20c0", "№", "٣٤٥", "१२३", "𝟘𝟙𝟚", "𝕳𝖊𝖑𝖑𝖔", "𐍈𐌰", "𒀀", "\U0001f6d8", "\u1c89", "ℵ", "∑∫√", "←↔⇒", "▁", "▁▁", "Ġ", "Ċ",
    "##", "##ing", "<0x41>", "<0xE2>", "\u0130", "K", "Ω", "ǅ", "\u0345", "΅", "＇ｓ", "’s", "„“", "«»", "…", "—", "–", "¿¡",
]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u2028", "\u2003", "\u3000", "\u0085", "\x0b", "\x0c", " \n ", "\x1c", "\u180e", "\u202f"]

SPECIALS = [
    "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>", "<|im_start|>", "<|im_end|>",
    "<think>", "</think>", "<tool_call>", "<s>", "</s>", "<unk>", "<pad>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<mask>",
    "<start_of_turn>", "<bos>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<extra_id_0>", "<|endoftext", "|endoftext|>", "<|ENDOFTEXT|>", "[cls]",
]

RANGES = [
    (0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x530, 0x590), (0x590, 0x600),
    (0x600, 0x700), (0x900, 0x980), (0x980, 0xA00), (0xB80, 0xC00), (0xE00, 0xE80), (0x10A0, 0x1100), (0x1100, 0x1200), (0x1200, 0x1380),
    (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x20A0), (0x20A0, 0x20D0), (0x2100, 0x2190), (0x2190, 0x2400), (0x2460, 0x2600),
    (0x3000, 0x3100), (0x3100, 0x3400), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFB50), (0xFB50, 0xFE00), (0xFE30, 0xFFF0),
    (0x10330, 0x10350), (0x1D400, 0x1D800), (0x1F300, 0x1F700), (0x1F900, 0x1FB00), (0x20000, 0x20100),
]

WORDS = ENGLISH.split() + " ".join(SENTENCES).split()


def of_range(chance):
    low, high = chance.pick(RANGES)
    return "".join(chr(low + chance.below(high - low)) for _ in range(1 + chance.below(8)))


def of_anywhere(chance):
    points = (chance.below(0x110000) for _ in range(1 + chance.below(6)))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


PIECES = [
    lambda c: c.pick(WORDS),
    lambda c: c.pick(WORDS).upper(),
    lambda c: c.pick(WORDS) + c.pick(["'s", "'S", "n't", "'re", "'VE", "'ll", "'d", "'m", "’t", "'x"]),
    lambda c: str(c.below(2147483646))[: 1 + c.below(10)],
    lambda c: c.pick(EMOJI),
    lambda c: c.pick(ODD),
    lambda c: c.pick(SPECIALS),
    lambda c: c.pick([".", ",", "!?", " .", " ,", " n't", " ' ", "()", "[]", "...", "--", "://", "@", "$€£", "'", '"', " do not"]),
    lambda c: chr(c.below(32)) if c.below(2) else chr(0x7F + c.below(34)),
    of_range,
    of_anywhere,
]


def mixture(chance):
    text = ""
    for _ in range(1 + chance.below(7)):
        text += PIECES[chance.below(len(PIECES))](chance)
        text += chance.pick(SPACES) if chance.below(3) else " " if chance.below(2) else ""
    return text


def prose(chance):
    start = chance.below(len(ENGLISH) - 80)
    return ENGLISH[start : start + 10 + chance.below(70)]


def texts():
    chance = Chance(20240607)
    result = ["", " ", "  ", "a", " a", "a ", "\n", *SPACES, *SPECIALS, *EMOJI, *ODD, *SENTENCES, *CODE]
    result += [f"{before}{special}{after}" for special in SPECIALS for before in ["", "a", "a "] for after in ["", "b", " b", "\n"]]
    result += ["a" * 600, "ab" * 200, "é" * 200, "😀" * 60, "語" * 150, " " * 90, "\n" * 70, "0123456789" * 20, "▁" * 40, "." * 100]
    result += [chr(point) for point in range(0x20)] + [chr(point) for point in range(0x7F, 0xA1)]
    while len(result) < TEXTS:
        kind = chance.below(10)
        if kind < 6:
            result.append(mixture(chance))
        elif kind < 8:
            result.append(prose(chance))
        elif kind < 9:
            result.append(chance.pick(SENTENCES) + chance.pick(SPACES) + chance.pick(CODE)[: 10 + chance.below(60)])
        else:
            result.append("".join(of_range(chance) for _ in range(3)))
    return result


def lessons():
    chance = Chance(7)
    lines = [ENGLISH] * 4 + CODE * 3 + SENTENCES * 3
    lines += [" ".join(chance.pick(WORDS) for _ in range(12)) for _ in range(300)]
    return lines


def lessons_in(letters):
    """Keeps only the most frequent letters. The trainer's own limit breaks ties randomly."""
    counts = {}
    for letter in "".join(lessons()):
        counts[letter] = counts.get(letter, 0) + 1
    kept = set(sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters])
    return ["".join(letter for letter in line if letter in kept) for line in lessons()]


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def byte_level(pattern, specials, plain=(), normalizer=None, bos=None, ignore_merges=False):
    """Creates a byte-level BPE tokenizer with the given pre-tokenization patterns."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        splits = [pre_tokenizers.Split(Regex(one), "isolated") for one in pattern]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(lessons(), trainer)
    tokenizer.add_special_tokens(special(*specials))
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in plain])
    after = processors.ByteLevel(trim_offsets=False)
    if bos is not None:
        template = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        after = processors.Sequence([after, template])
    tokenizer.post_processor = after
    return tokenizer


def with_byte_fallback(specials, shape):
    """Creates BPE in the layout of SentencePiece: special tokens and bytes first, then the pieces."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(lessons_in(150), trainers.BpeTrainer(vocab_size=900, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    contents = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    vocab = {content: i for i, content in enumerate(dict.fromkeys(contents))}
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    shape(tokenizer)
    tokenizer.add_special_tokens(special(*specials))
    return tokenizer


def template(tokenizer, single, *names):
    return processors.TemplateProcessing(single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])


def llama2():
    def shape(tokenizer):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )

    tokenizer = with_byte_fallback(["<unk>", "<s>", "</s>"], shape)
    tokenizer.post_processor = template(tokenizer, "<s> $A", "<s>")
    return tokenizer


def mistral():
    def shape(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )

    tokenizer = with_byte_fallback(["<unk>", "<s>", "</s>"], shape)
    tokenizer.post_processor = template(tokenizer, "<s> $A", "<s>")
    return tokenizer


def gemma():
    def shape(tokenizer):
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])

    tokenizer = with_byte_fallback(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], shape)
    tokenizer.post_processor = template(tokenizer, "<bos> $A", "<bos>")
    return tokenizer


def counted(words):
    """Counts each piece of up to seven letters in the words."""
    counts = {}
    for word in words:
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + 7) + 1):
                piece = (start > 0, word[start:end])
                counts[piece] = counts.get(piece, 0) + 1
    return counts


def unigram():
    """Scores pieces by counts: the scores of the trainer differ between runs."""
    counts = {}
    for (_, piece), count in counted("▁" + word for line in lessons() for word in line.split()).items():
        counts[piece] = counts.get(piece, 0) + count
    single = sorted(piece for piece in counts if len(piece) == 1)
    longer = [piece for piece in counts if len(piece) > 1 and counts[piece] >= 4]
    longer.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    pieces = [*single, *longer[:1100]]
    # Multiples of a quarter, so that every platform and library computes the same sums.
    scored = [(piece, -16 + min(40, counts[piece].bit_length() * 2 + len(piece) * 5) / 4) for piece in pieces]
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scored]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(special("<pad>", "</s>", "<unk>", "<extra_id_0>"))
    tokenizer.post_processor = template(tokenizer, "$A </s>", "</s>")
    return tokenizer


def word_piece():
    """Builds the vocabulary by counts: the trainer numbers the pieces differently in every run."""
    normalizer = normalizers.BertNormalizer(lowercase=True)
    before = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [word for line in lessons_in(200) for word, _ in before.pre_tokenize_str(normalizer.normalize_str(line))]
    counts = counted(words)
    ranked = sorted(counts, key=lambda key: (len(key[1]) > 1, -counts[key] * len(key[1]), key))
    pieces = [("##" if inside else "") + piece for inside, piece in ranked[:1300]]
    vocab = {content: i for i, content in enumerate([*names, *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = before
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens(special(*names))
    tokenizer.post_processor = template(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")
    return tokenizer


LLAMA3_SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]

SHAPES = {
    "gpt2": lambda: byte_level(None, ["<|endoftext|>"]),
    "llama3": lambda: byte_level([LLAMA3], LLAMA3_SPECIALS, bos="<|begin_of_text|>", ignore_merges=True),
    "qwen": lambda: byte_level(
        [QWEN],
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        plain=["<think>", "</think>", "<tool_call>", "</tool_call>"],
        normalizer=normalizers.NFC(),
    ),
    "o200k": lambda: byte_level([O200K], ["<|endoftext|>", "<|im_start|>"]),
    "deepseek": lambda: byte_level(
        DEEPSEEK, ["<｜begin▁of▁sentence｜>", "<｜User｜>"], plain=["<think>", "</think>"], bos="<｜begin▁of▁sentence｜>"
    ),
    "llama2": llama2,
    "mistral": mistral,
    "gemma": gemma,
    "unigram": unigram,
    "wordpiece": word_piece,
}


def packed(numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}H", *numbers)).decode()


def golden(tokenizer, inputs):
    """Records the encodings of every text and the decodings of arbitrary tokens. 0 stands for the text itself."""
    encodings = [tokenizer.encode(text) for text in inputs]
    same = lambda text, other: 0 if text == other else text
    chance = Chance(11)
    size = tokenizer.get_vocab_size()
    salads = [[chance.below(size) for _ in range(1 + chance.below(12))] for _ in range(SALADS)]
    close = list(zip(inputs, encodings))[:CLOSE_UPS]
    return {
        "encoded": [packed(encoding.ids) for encoding in encodings],
        "bare": [packed(tokenizer.encode(text, add_special_tokens=False).ids) for text, _ in close],
        "offsets": [packed([n for pair in encoding.offsets for n in pair]) for _, encoding in close],
        "decoded": [same(tokenizer.decode(e.ids, skip_special_tokens=False), text) for text, e in zip(inputs, encodings)],
        "skipped": [same(tokenizer.decode(e.ids, skip_special_tokens=True), text) for text, e in zip(inputs, encodings)],
        "salads": [
            [packed(ids), text, same(tokenizer.decode(ids, skip_special_tokens=True), text)]
            for ids, text in ((ids, tokenizer.decode(ids, skip_special_tokens=False)) for ids in salads)
        ],
    }


def refusals(tokenizer):
    """Records how the library reacts to invalid input."""

    def outcome(run):
        try:
            return {"result": run()}
        except Exception as error:
            return {"error": type(error).__name__}

    size = tokenizer.get_vocab_size()
    known = tokenizer.encode("hello").ids
    return {
        "lone surrogate": outcome(lambda: tokenizer.encode("a\ud800b").ids),
        "id that does not exist": outcome(lambda: tokenizer.decode([*known, size, 4294967295]) == tokenizer.decode(known)),
        "negative id": outcome(lambda: tokenizer.decode([-1])),
        "too large id": outcome(lambda: tokenizer.decode([4294967296])),
        "fraction": outcome(lambda: tokenizer.decode([1.5])),
        "nothing": outcome(lambda: tokenizer.decode([])),
    }


def main(directory):
    if tokenizers.__version__ != PINNED:
        sys.exit(f"expected tokenizers {PINNED}, got {tokenizers.__version__}")
    directory.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Escapes control characters and characters that editors do not show.
        text = "".join(f"\\u{ord(c):04x}" if c in "\x7f\u0085\u2028\u2029\ufeff\ufffe" else c for c in text)
        (directory / name).write_text(text + "\n", encoding="utf-8")

    inputs = texts()
    write("texts.json", inputs)
    outcomes = {}
    for name, shape in SHAPES.items():
        tokenizer = shape()
        definition = json.loads(tokenizer.to_str())
        write(f"{name}.tokenizer.json", definition)
        # Measures the definition as written.
        reloaded = Tokenizer.from_str(json.dumps(copy.deepcopy(definition)))
        write(f"{name}.golden.json", golden(reloaded, inputs))
        outcomes[name] = refusals(reloaded)
    write("refusals.json", outcomes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
