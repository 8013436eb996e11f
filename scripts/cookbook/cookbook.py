"""Trains with the official cookbook, unmodified, what `Plan.ts` describes.

    python cookbook.py <plan.json>

The plan has the configurations, the rows in the order in which they are used, and where to write. Only the cookbook's
public interfaces are used: data set builders for its training loops, and the functions that read the files of a run.
"""

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import chz
from tinker_cookbook import checkpoint_utils, renderers
from tinker_cookbook.rl import train as rl_train
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tinker_cookbook.stores.storage import LocalStorage
from tinker_cookbook.stores.training_store import TrainingRunStore
from tinker_cookbook.supervised import train as supervised_train
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

plan = json.loads(Path(sys.argv[1]).read_text())
MODEL = plan["model"]


def renderer():
    return renderers.get_renderer("role_colon", get_tokenizer(MODEL))


class Rows(SupervisedDataset):
    """Batches of conversations, given for each epoch."""

    def __init__(self, epochs, max_length):
        self.epochs = epochs
        self.epoch = 0
        self.max_length = max_length
        self.renderer = renderer()

    def set_epoch(self, seed=0):
        self.epoch = seed

    def get_batch(self, index):
        return [
            conversation_to_datum(row["messages"], self.renderer, self.max_length)
            for row in self.epochs[self.epoch][index]
        ]

    def __len__(self):
        return len(self.epochs[0])


@chz.chz
class RowsBuilder(SupervisedDatasetBuilder):
    flat: bool = False

    def __call__(self):
        order, max_length = plan["order"], plan["supervised"]["maxLength"]
        epochs = [[batch for epoch in order["epochs"] for batch in epoch]] if self.flat else order["epochs"]
        return Rows(epochs, max_length), Rows([[order["heldOut"]]], max_length)


def supervised(log_path, flat=False):
    own = plan["supervised"]
    config = supervised_train.Config(
        log_path=log_path,
        model_name=MODEL,
        recipe_name="comparison",
        renderer_name="role_colon",
        dataset_builder=RowsBuilder(flat=flat),
        learning_rate=own["learningRate"],
        lr_schedule=own["schedule"],
        num_epochs=1 if flat else own["epochs"],
        lora_rank=own["rank"],
        base_url=plan["urls"]["supervised"],
        eval_every=own["evaluateEverySteps"],
        save_every=own["checkpoints"]["everySteps"],
    )
    asyncio.run(supervised_train.main(config))


class Letters(ProblemEnv):
    def __init__(self, question):
        super().__init__(
            renderer(), format_coef=plan["formatCoefficient"], require_stop_sequence_for_format=False
        )
        self.question = question

    def get_question(self):
        return self.question

    def check_answer(self, sample_str):
        return min(1, len(sample_str.split("a")) / 16)

    def check_format(self, sample_str):
        return sample_str.strip() != ""

    def get_reference_answer(self):
        return "a"


class Tasks(RLDataset):
    def __init__(self, own):
        self.own = own

    def get_batch(self, index) -> Sequence[EnvGroupBuilder]:
        groups = self.own["groupsPerIteration"]
        return [
            ProblemGroupBuilder(lambda task=task: Letters(plan["questions"][task]), self.own["groupSize"])
            for task in range(index * groups, (index + 1) * groups)
        ]

    def __len__(self):
        return self.own["iterations"]


@chz.chz
class TasksBuilder(RLDatasetBuilder):
    run: str

    async def __call__(self):
        return Tasks(plan["reinforcements"][self.run]), None


def reinforced(run, log_path):
    own = plan["reinforcements"][run]
    penalty = own.get("klPenalty", 0)
    config = rl_train.Config(
        log_path=log_path,
        model_name=MODEL,
        recipe_name="comparison",
        renderer_name="role_colon",
        dataset_builder=TasksBuilder(run=run),
        learning_rate=own["learningRate"],
        max_tokens=own["maxTokens"],
        temperature=own["temperature"],
        lora_rank=own["rank"],
        base_url=plan["urls"][run],
        kl_penalty_coef=penalty,
        kl_discount_factor=own.get("klDiscount", 0),
        kl_reference_config=rl_train.KLReferenceConfig(base_model=MODEL) if penalty > 0 else None,
        loss_fn=own["loss"],
        num_substeps=own.get("updatesPerIteration", 1),
        eval_every=0,
        save_every=own["checkpoints"]["everySteps"],
    )
    asyncio.run(rl_train.main(config))


def read(directory):
    """Reads the directory of a run of ours with the cookbook's tools."""
    store = TrainingRunStore(LocalStorage(directory))
    last = checkpoint_utils.get_last_checkpoint(directory)
    sampler = checkpoint_utils.get_last_checkpoint(directory, required_key="sampler_path")
    return {
        "last": last and last.to_dict(),
        "sampler": sampler and sampler.to_dict(),
        "checkpoints": [record.to_dict() for record in store.read_checkpoint_records()],
        "metrics": store.read_metrics(),
        "names": sorted(store.metric_keys()),
    }


def main():
    logging.disable(logging.INFO)
    ours, theirs = Path(plan["ours"]), Path(plan["theirs"])
    supervised(str(theirs / "supervised"))
    for run in plan["reinforcements"]:
        reinforced(run, str(theirs / run))
    result = {run: read(str(ours / run)) for run in ["supervised", *plan["reinforcements"]]}
    # The cookbook continues our run at its first checkpoint.
    continued = theirs / "continued"
    continued.mkdir(parents=True)
    first = (ours / "supervised" / "checkpoints.jsonl").read_text().splitlines()[0]
    (continued / "checkpoints.jsonl").write_text(first + "\n")
    supervised(str(continued), flat=True)
    shutil.copy(continued / "metrics.jsonl", theirs / "continued.jsonl")
    Path(plan["result"]).write_text(json.dumps(result))


main()
