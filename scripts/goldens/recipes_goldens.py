"""Records what the official cookbook, torch and pyarrow make of generated inputs.

    python recipes_goldens.py <directory>

All random data comes from one generator with a fixed seed, so that two runs write the same bytes.
"""

import asyncio
import datetime
import json
import logging
import struct
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import tinker
import torch
from tokenizers import Tokenizer

from tinker_cookbook import hyperparam_utils
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.distillation import train_on_policy as distillation
from tinker_cookbook.eval.benchmarks._runner import _compute_pass_at_k
from tinker_cookbook.preference.train_dpo import compute_dpo_loss
from tinker_cookbook.recipes.decisions import DecisionRendering, probability_loss, sample_decision
from tinker_cookbook.recipes.decisions.forecasting import brier_score_loss
from tinker_cookbook.rl import metrics as rl_metrics
from tinker_cookbook.rl.data_processing import (
    assemble_training_data,
    compute_advantages,
    remove_constant_reward_groups,
)
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.types import PARSE_ERROR_MASKED_METRIC_KEY, Trajectory, TrajectoryGroup, Transition
from tinker_cookbook.supervised.common import compute_bpb, compute_mean_nll
from tinker_cookbook.utils.lr_scheduling import compute_schedule_lr_multiplier

PINNED = {"tinker-cookbook": "0.5.8", "tinker": "0.36.0", "torch": "2.15.0", "pyarrow": "26.0.1"}

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
torch.set_num_threads(1)


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


class Chance:
    """A Lehmer generator: its numbers are the same in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = self.state * 48271 % 2147483647
        return self.state % n

    def number(self, low, high):
        """A number that float32 holds exactly."""
        return single(low + (high - low) * self.below(100_001) / 100_000)

    def numbers(self, count, low, high):
        return [self.number(low, high) for _ in range(count)]

    def tokens(self, count):
        return [self.below(1000) for _ in range(count)]


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


def text(tokens):
    return tinker.ModelInput(chunks=[tinker.EncodedTextChunk(tokens=tokens)])


def trajectory(chance, turns):
    """A conversation that usually grows, and sometimes starts anew."""
    transitions = []
    history = []
    for _ in range(turns):
        grows = chance.below(4) > 0
        observation = (history if grows else []) + chance.tokens(1 + chance.below(5))
        tokens = chance.tokens(1 + chance.below(6))
        transitions.append(
            Transition(
                ob=text(observation),
                ac=TokensWithLogprobs(tokens=tokens, maybe_logprobs=chance.numbers(len(tokens), -4, 0)),
                reward=chance.below(3) / 2,
                episode_done=False,
                metrics={PARSE_ERROR_MASKED_METRIC_KEY: 1.0} if chance.below(5) == 0 else {"format": chance.below(2)},
                logs={},
            )
        )
        history = observation + tokens
    return Trajectory(transitions=transitions, final_ob=text([1]))


def groups(chance, kind):
    made = []
    for _ in range(3 + chance.below(3)):
        size = 1 + chance.below(6)
        if kind == "constant" or (kind == "mixed" and chance.below(2) == 0):
            members = [Trajectory(transitions=[], final_ob=text([1])) for _ in range(size)]
            rewards = [0.5] * size
        else:
            members = [trajectory(chance, 1 + chance.below(3)) for _ in range(size)]
            rewards = chance.numbers(size, -1, 1)
        made.append(TrajectoryGroup(members, rewards, [{"solved": chance.below(2)} for _ in members]))
    return made


def described(group):
    return [
        {
            "reward": total,
            "metrics": metrics,
            "transitions": [
                {
                    "observation": [token for chunk in step.ob.chunks for token in chunk.tokens],
                    "tokens": step.ac.tokens,
                    "logprobs": step.ac.logprobs,
                    "masked": PARSE_ERROR_MASKED_METRIC_KEY in step.metrics,
                    "metrics": step.metrics,
                }
                for step in member.transitions
            ],
        }
        for member, total, metrics in zip(group.trajectories_G, group.get_total_rewards(), group.metrics_G)
    ]


def rollouts(directory):
    chance = Chance(2)
    cases = []
    for kind in ("varied", "mixed", "constant") * 4:
        all_groups = groups(chance, kind)
        left = remove_constant_reward_groups(all_groups)
        advantages = compute_advantages(all_groups)
        data, origins = assemble_training_data(all_groups, advantages)
        tags = [["math"] if chance.below(2) == 0 else ["code"] for _ in all_groups]
        cases.append(
            {
                "groups": [described(group) for group in all_groups],
                "kept": [index for index, group in enumerate(all_groups) if any(group is one for one in left)],
                "advantages": [values.tolist() for values in advantages],
                "data": [
                    {
                        "group": origin["group_idx"],
                        "member": origin["traj_idx"],
                        "input": datum.model_input.to_ints(),
                        **{name: values.data for name, values in datum.loss_fn_inputs.items()},
                    }
                    for datum, origin in zip(data, origins)
                ],
                "tags": tags,
                "metrics": compute_trajectory_metrics(all_groups, tags),
            }
        )
    write(directory, "rollouts.json", cases)


class Sampler:
    """A sampling client that answers with given log probabilities."""

    def __init__(self, answers):
        self.answers = iter(answers)

    async def compute_logprobs_async(self, _):
        return [None, *next(self.answers)]


def kl(directory):
    chance = Chance(3)
    cases = []
    for discount in (0, 0, 0.5, 0.9, 1) * 3:
        lengths = [1 + chance.below(30) for _ in range(1 + chance.below(4))]
        sampled = [chance.numbers(length, -5, 0) for length in lengths]
        other = [chance.numbers(length, -5, 0) for length in lengths]
        mask = [[1.0] + [float(chance.below(3) > 0) for _ in range(length - 1)] for length in lengths]
        advantages = [chance.numbers(length, -1, 1) for length in lengths]
        coefficient = chance.number(0, 1)

        def floats(values):
            return tinker.TensorData(data=values, dtype="float32", shape=[len(values)])

        tokens = [(chance.tokens(length), chance.tokens(length)) for length in lengths]

        def datums():
            return [
                tinker.Datum(
                    model_input=text(inputs),
                    loss_fn_inputs={
                        "target_tokens": tinker.TensorData(data=targets, dtype="int64", shape=[len(targets)]),
                        "logprobs": floats(sampled[index]),
                        "mask": floats(mask[index]),
                        "advantages": floats(advantages[index]),
                    },
                )
                for index, (inputs, targets) in enumerate(tokens)
            ]

        data = datums()
        sample_train = rl_metrics.compute_kl_sample_train(data, [torch.tensor(one) for one in other])
        pre_post = asyncio.run(rl_metrics.compute_post_kl(data, Sampler(other)))
        penalty = asyncio.run(rl_metrics.incorporate_kl_penalty(data, Sampler(other), coefficient, discount))
        distilled = datums()
        teachers = [Sampler([one]) for one in other]
        teacher = asyncio.run(
            distillation.incorporate_kl_penalty(distilled, teachers, [0] * len(distilled), coefficient, discount)
        )
        cases.append(
            {
                "data": [
                    {"sampled": s, "other": o, "mask": m, "advantages": a}
                    for s, o, m, a in zip(sampled, other, mask, advantages)
                ],
                "coefficient": coefficient,
                "discount": discount,
                "sampleTrain": sample_train,
                "prePost": pre_post,
                "penalty": penalty,
                "advantages": [datum.loss_fn_inputs["advantages"].data for datum in data],
                "teacher": teacher,
                "distilled": [datum.loss_fn_inputs["advantages"].data for datum in distilled],
            }
        )
    write(directory, "kl.json", cases)


def dpo(directory):
    chance = Chance(4)
    cases = []
    for beta in (0.05, 0.1, 0.5, 5.0) * 3:
        pairs = 1 + chance.below(5)
        data = []
        for _ in range(2 * pairs):
            length = 1 + chance.below(12)
            data.append(
                {
                    "logprobs": chance.numbers(length, -6, 0),
                    "reference": chance.numbers(length, -6, 0),
                    "weights": [1.0] + [float(chance.below(3) > 0) for _ in range(length - 1)],
                }
            )

        def tensor(values):
            return torch.tensor(values, dtype=torch.float64)

        logprobs = [tensor(one["logprobs"]).requires_grad_() for one in data]
        sums = [torch.dot(own, tensor(one["weights"])) for own, one in zip(logprobs, data)]
        references = [torch.dot(tensor(one["reference"]), tensor(one["weights"])) for one in data]
        loss, metrics = compute_dpo_loss(sums[0::2], sums[1::2], references[0::2], references[1::2], beta)
        loss.backward()
        cases.append(
            {
                "beta": beta,
                "data": data,
                "loss": loss.item(),
                "metrics": metrics,
                "gradients": [own.grad.tolist() for own in logprobs],
            }
        )
    write(directory, "dpo.json", cases)


class Decoder:
    """Wraps the tokenizers library with what the cookbook calls."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.all_special_ids = [
            token for token, added in self.tokenizer.get_added_tokens_decoder().items() if added.special
        ]

    def decode(self, tokens, skip_special_tokens):
        return self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)


def likelihood(directory):
    chance = Chance(5)
    cases = []
    goldens = Path(__file__).parents[2] / "packages/tokenizer/test/goldens"
    texts = json.loads((goldens / "texts.json").read_text(encoding="utf-8"))
    for name in ("llama3", "qwen", "gpt2"):
        decoder = Decoder(goldens / f"{name}.tokenizer.json")
        for reduction in ("sum", "mean", "none"):
            batch = []
            for _ in range(3):
                tokens = decoder.tokenizer.encode(texts[chance.below(len(texts))]).ids[:40]
                if decoder.all_special_ids:
                    tokens.insert(chance.below(len(tokens) + 1), decoder.all_special_ids[0])
                weights = [0.0 if reduction == "none" else float(chance.below(4) > 0) for _ in tokens]
                if reduction == "mean":
                    weights = [single(weight / max(1, sum(weights))) for weight in weights]
                batch.append({"targetTokens": tokens, "weights": weights, "logprobs": chance.numbers(len(tokens), -5, 0)})

            def tensors(key, dtype):
                return [tinker.TensorData(data=one[key], dtype=dtype, shape=[len(one[key])]) for one in batch]

            floats = (tensors("logprobs", "float32"), tensors("weights", "float32"))
            nll = compute_mean_nll(*floats)
            bpb = compute_bpb(*floats, tensors("targetTokens", "int64"), decoder)
            cases.append(
                {
                    "tokenizer": name,
                    "special": decoder.all_special_ids,
                    "data": batch,
                    "nll": nll if nll == nll else None,
                    "bpb": bpb if bpb == bpb else None,
                }
            )
    write(directory, "likelihood.json", cases)


def learning_rates(directory):
    rates = []
    for name in [*hyperparam_utils._LORA_PARAMS_PER_RANK_BY_COMPONENT, "Qwen/Qwen3-8B:peft:262144", "example/unknown"]:
        for lora in (True, False):
            try:
                rates.append({"model": name, "lora": lora, "rate": hyperparam_utils.get_lr(name, lora)})
            except Exception as error:
                rates.append({"model": name, "lora": lora, "error": type(error).__name__})
    counts = [
        {
            "model": name,
            "rank": rank,
            "layers": layers,
            "count": hyperparam_utils.get_lora_param_count(name, rank, *layers),
        }
        for name in [*hyperparam_utils._LORA_PARAMS_PER_RANK_BY_COMPONENT, "Qwen/Qwen3-8B:peft:262144"]
        for rank, layers in ((32, (True, True, True)), (1, (True, False, False)), (8, (False, True, True)))
    ]
    schedules = [
        {
            "schedule": schedule,
            "step": step,
            "steps": steps,
            "multiplier": compute_schedule_lr_multiplier(schedule, step, steps),
        }
        for schedule in ("linear", "cosine", "constant")
        for steps in (1, 2, 7, 100, 12345)
        for step in sorted({0, 1, steps // 3, steps // 2, steps - 1, steps} & set(range(steps + 1)))
    ]
    write(directory, "learning-rates.json", {"rates": rates, "counts": counts, "schedules": schedules})


def pass_at_k(directory):
    chance = Chance(6)
    cases = []
    for _ in range(20):
        rewards = {
            str(index): [float(chance.below(3) == 0) for _ in range(1 + chance.below(12))]
            for index in range(1 + chance.below(6))
        }
        scores = _compute_pass_at_k(rewards, [1, 2, 5, 10])
        cases.append(
            {
                "problems": [{"attempts": len(one), "solved": int(sum(one))} for one in rewards.values()],
                "scores": {str(k): score for k, score in scores.items()},
            }
        )
    write(directory, "pass-at-k.json", cases)


class Decider:
    """A sampling client that answers with given log probabilities at the last token of the prompt."""

    def __init__(self, logprobs):
        self.logprobs = logprobs

    async def sample_async(self, target_prompt_logprobs, **_):
        targets = target_prompt_logprobs.to_torch()
        found = torch.zeros(targets.shape, dtype=torch.float32)
        found[-1] = torch.tensor(self.logprobs)
        return SimpleNamespace(target_prompt_logprobs=tinker.TensorData.from_torch(found))


def decisions(directory):
    chance = Chance(7)
    cases = []
    for _ in range(20):
        labels = [f"label {index}" for index in range(2 + chance.below(5))]
        rows = []
        for _ in range(1 + chance.below(8)):
            logprobs = chance.numbers(len(labels), -9, 0)
            tokens = chance.tokens(3 + chance.below(20))
            rendering = DecisionRendering(
                tokens=tokens, choice_pos=len(tokens) - 1, label_tokens={label: at for at, label in enumerate(labels)}
            )
            found = asyncio.run(sample_decision(Decider(logprobs), rendering))
            rows.append(
                {
                    "label": chance.below(len(labels)),
                    "length": len(tokens),
                    "logprobs": logprobs,
                    "probabilities": list(found.values()),
                }
            )
        data = [
            tinker.Datum(
                model_input=text([1]),
                loss_fn_inputs={
                    "weights": tinker.TensorData.from_torch(
                        torch.nn.functional.one_hot(torch.tensor([row["label"]]), len(labels)).float()
                    )
                },
            )
            for row in rows
        ]
        outputs = [torch.tensor([row["logprobs"]]) for row in rows]
        brier, metrics = probability_loss(brier_score_loss)(data, outputs)
        log_loss, _ = probability_loss(lambda found, wanted: -torch.log((found * wanted).sum()))(data, outputs)
        cases.append(
            {
                "labels": labels,
                "rows": rows,
                "metrics": {"accuracy": metrics["accuracy"], "brier": brier.item(), "log_loss": log_loss.item()},
            }
        )
    write(directory, "decisions.json", cases)


def main():
    for package, wanted in PINNED.items():
        if version(package).split("+")[0] != wanted:
            sys.exit(f"expected {package} {wanted}, found {version(package)}")
    target = Path(sys.argv[1])
    parquet(target / "parquet")
    shuffle(target)
    rollouts(target)
    kl(target)
    dpo(target)
    likelihood(target)
    learning_rates(target)
    pass_at_k(target)
    decisions(target)


main()
