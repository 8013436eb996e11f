"""Records what the official cookbook, torch and pyarrow make of generated inputs.

    python recipes_goldens.py <directory>

All random data comes from one generator with a fixed seed, so that two runs write the same bytes.
"""

import datetime
import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet


class Chance:
    """A Lehmer generator: its numbers are the same in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = self.state * 48271 % 2147483647
        return self.state % n

    def number(self, low, high):
        """A number with few digits, which JSON and float32 hold exactly enough."""
        return low + (high - low) * self.below(100_001) / 100_000


def write(directory, name, value):
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (directory / name).write_text(text + "\n", encoding="utf-8")


def parquet(directory):
    chance = Chance(1)
    rows = [
        {
            "id": index,
            "large": 2**60 + index,
            "score": None if index % 7 == 3 else chance.number(-1, 1),
            "text": f"row {index}: ünïcode 😀 " + "x" * chance.below(40),
            "messages": [
                {"role": "user", "content": f"question {index}\nsecond line"},
                {"role": "assistant", "content": "" if index % 5 == 0 else f"answer {chance.below(1000)}"},
            ],
            "at": datetime.datetime(2026, 1, 1, 0, 0, index % 60, tzinfo=datetime.timezone.utc),
            "flag": index % 2 == 0,
        }
        for index in range(50)
    ]
    message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
    schema = pyarrow.schema(
        [
            ("id", pyarrow.int64()),
            ("large", pyarrow.int64()),
            ("score", pyarrow.float64()),
            ("text", pyarrow.string()),
            ("messages", pyarrow.list_(message)),
            ("at", pyarrow.timestamp("ms", tz="UTC")),
            ("flag", pyarrow.bool_()),
        ]
    )
    table = pyarrow.Table.from_pylist(rows, schema)
    directory.mkdir(parents=True, exist_ok=True)
    for compression in ("none", "snappy", "gzip", "zstd", "brotli", "lz4"):
        pyarrow.parquet.write_table(
            table, directory / f"{compression}.parquet", compression=compression, row_group_size=20
        )
    write(
        directory,
        "rows.json",
        [
            {**row, "large": str(row["large"]), "at": row["at"].strftime("%Y-%m-%dT%H:%M:%S.000Z")}
            for row in rows
        ],
    )


def mixed(word):
    word &= 0xFFFFFFFF
    word = (word ^ (word >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    word = (word ^ (word >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return word ^ (word >> 16)


class Xoshiro:
    """xoshiro128**, seeded as `packages/recipes/src/internal/Generator.ts` describes."""

    def __init__(self, seed, purpose, part):
        words = (seed & 0xFFFFFFFF, seed >> 32, purpose, part)
        self.state = [mixed(word + (index + 1) * 0x9E3779B9) for index, word in enumerate(words)]
        for _ in range(16):
            self.next()

    def next(self):
        def rotate(word, by):
            return (word << by | word >> (32 - by)) & 0xFFFFFFFF

        a, b, c, d = self.state
        result = rotate(b * 5 & 0xFFFFFFFF, 7) * 9 & 0xFFFFFFFF
        shifted = b << 9 & 0xFFFFFFFF
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        self.state = [a, b, c ^ shifted, rotate(d, 11)]
        return result

    def below(self, limit):
        end = 2**32 - 2**32 % limit
        while (number := self.next()) >= end:
            pass
        return number % limit

    def permutation(self, size):
        order = list(range(size))
        for last in range(size - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def shuffle(directory):
    cases = []
    for seed in (0, 1, 42, -7, 2**31, 2**32 + 5, 2**53 - 1):
        for size in (2, 12, 100):
            generator = Xoshiro(seed, 1, 0)
            cases.append(
                {
                    "seed": seed,
                    "size": size,
                    "numbers": [generator.next() for _ in range(4)],
                    "epochs": [Xoshiro(seed, 1, epoch).permutation(size) for epoch in range(3)],
                    "heldOut": sorted(Xoshiro(seed, 2, 0).permutation(size)[: size // 4 or 1]),
                }
            )
    write(directory, "shuffle.json", cases)


def main():
    target = Path(sys.argv[1])
    parquet(target / "parquet")
    shuffle(target)


main()
