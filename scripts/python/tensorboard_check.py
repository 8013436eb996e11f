"""Reads the event files of tensorboard_write.ts with Python's tensorboard, which checks every checksum."""

import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

failures = 0


def check(what, got, wanted):
    global failures
    ok = got == wanted
    print(f"{'ok  ' if ok else 'FAIL'} {what}" + ("" if ok else f": got {got!r}, wanted {wanted!r}"))
    failures += not ok


events = EventAccumulator(sys.argv[1], size_guidance={"tensors": 0, "scalars": 0})
events.Reload()

nll = events.Scalars("train_mean_nll")
check("steps of two processes, without those that were repeated", [e.step for e in nll], [0, 1, 2, 3, 4, 5])
check("the repeated steps are those of the second process", nll[3].wall_time, 1_700_000_103.0)
check("values", [round(e.value, 6) for e in nll], [round(2 / (i + 1), 6) for i in range(6)])
check("learning rate", round(events.Scalars("optim/lr")[0].value, 9), 1e-4)
check("NaN", math.isnan(events.Scalars("broken")[0].value), True)
check("evaluation", [(e.step, e.value) for e in events.Scalars("test/nll")], [(6, 0.5)])


def text(tag):
    event = events.Tensors(tag)[0]
    return event.step, [one.decode() for one in tensor_util.make_ndarray(event.tensor_proto).ravel()]


check("sample", text("sample/rollout"), (6, ["Grüße 你好\n\n---\n\none two\n\n---\n\nreward 1"]))
check("long text", text("warning/rows_skipped"), (6, ["x" * 300]))
check("plugin", events.SummaryMetadata("sample/rollout").plugin_data.plugin_name, "text")
sys.exit(1 if failures else 0)
