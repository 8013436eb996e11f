"""Imports `tml_renderers`, the vendor's renderers in Rust, without torch.

The library looks for functions of torch when it is loaded but calls them only for audio. Torch for this platform comes
with gigabytes of CUDA, so a small library with empty functions of these names is compiled instead. Needs a C compiler;
set GOLDENS_TORCH=real to use an installed torch.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

PINNED = "0.2.1"


def _load():
    package = distribution("tml_renderers")
    if package.version != PINNED:
        sys.exit(f"expected tml-renderers {PINNED}, got {package.version}")
    if os.environ.get("GOLDENS_TORCH") == "real":
        return
    binary = Path(str(package.locate_file("tml_renderers"))) / "_tml_renderers.abi3.so"
    names = sorted(set(re.findall(rb"missing stable-ABI symbol (\w+)", binary.read_bytes())))
    directory = Path(tempfile.mkdtemp())
    source = directory / "empty.c"
    source.write_text("".join(f"int {name.decode()}(void) {{ return 1; }}\n" for name in names))
    library = directory / "libtorch_cpu.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, f"-Wl,-soname,{library.name}"], check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(Path(__file__).parent / "standins"))


_load()

from tml_renderers import chat, renderers, tokenizers, v0  # noqa: E402, F401


def named(tokenizer, spelled):
    """Maps the ids of special tokens to the way they are written: `<|name|>` or as `spelled` says."""
    return {tokenizer.encode_special(name): spelled(name) for name in tokenizer.special_tokens()}


class Pieces:
    """Splits token sequences into special tokens and texts, and checks that each text is encoded as a whole."""

    def __init__(self, tokenizer, spelled=lambda name: f"<|{name}|>"):
        self.tokenizer = tokenizer
        self.specials = named(tokenizer, spelled)

    def of(self, tokens):
        pieces = []
        texts = []

        def close():
            if texts:
                text = self.tokenizer.decode(texts)
                assert list(self.tokenizer.encode_ordinary(text)) == texts, "the text is not encoded as a whole"
                pieces.append({"text": text})
                texts.clear()

        for token in tokens:
            if token in self.specials:
                close()
                pieces.append({"special": self.specials[token]})
            else:
                texts.append(token)
        close()
        return pieces
