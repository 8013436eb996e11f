"""Tests our server with the official Python SDK: every public operation, sync and async, the CLI, training loops, errors.

Usage: suite.py BASE_URL TINKER_COMMAND. Prints a line per check and `N passed, N failed`.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

BASE_URL, TINKER = sys.argv[1], sys.argv[2]
os.environ["TINKER_BASE_URL"] = BASE_URL
os.environ["TINKER_API_KEY"] = "tml-suite"
os.environ["TINKER_TELEMETRY"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

warnings.simplefilter("ignore")
import tinker  # noqa: E402
from tinker import types  # noqa: E402

VERSION = tuple(int(part) for part in tinker.__version__.split(".")[:2])
NEW = VERSION >= (0, 30)
passed, failed = [], []


def check(name, condition, shown=""):
    (passed if condition else failed).append(name)
    print(("ok   " if condition else "FAIL ") + name + (f"   {shown}" if shown != "" else ""), flush=True)


def attempt(name, body):
    """Runs a check whose body may raise, and prints its result."""
    try:
        shown = body()
        check(name, True, shown if shown is not None else "")
        return shown
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        check(name, False, f"{type(error).__name__}: {error}")
        return None


def raises(name, body, *words):
    started = time.monotonic()
    try:
        body()
        check(name, False, "no exception was raised")
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
        quick = time.monotonic() - started < 45
        check(name, quick and all(word in text for word in words), text[:160])


def created(client):
    """Waits for a new client: from 0.37 on, the SDK returns a future that also serves as the client."""
    return client.result() if hasattr(client, "result") else client


service = tinker.ServiceClient(user_metadata={"suite": "python"})
capabilities = service.get_server_capabilities()
MODEL = capabilities.supported_models[0].model_name
check("get_server_capabilities", MODEL is not None, MODEL)


def datum(tokens):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
    )


PAIRS = [[10, 20 + i, 30 + i, 40 + i, 50 + i, 60 + i] for i in range(8)]
DATA = [datum(tokens) for tokens in PAIRS]
ADAM = types.AdamParams(learning_rate=5e-3)


def loss_of(result):
    return result.metrics["loss:sum"]


# Supervised

training = service.create_lora_training_client(base_model=MODEL, rank=8, seed=1)
info = training.get_info()
check("get_info", info.model_data.model_name == MODEL and info.lora_rank == 8, info.model_id)
losses = []
for step in range(40):
    both = training.forward_backward(DATA, "cross_entropy"), training.optim_step(ADAM)
    losses.append(loss_of(both[0].result()))
    update = both[1].result()
check("supervised loop reduces the loss", losses[-1] < 0.7 * losses[0], f"{losses[0]:.2f} -> {losses[-1]:.2f}")
check("optim_step has metrics", update.metrics is not None and len(update.metrics) > 0, update.metrics)
forward = training.forward(DATA[:2], "cross_entropy").result()
check("forward", len(forward.loss_fn_outputs) == 2 and len(forward.loss_fn_outputs[0]["logprobs"].data) == 5)

# Chunks: more than one request for a call
many = training.forward_backward([datum(PAIRS[i % 8]) for i in range(1030)], "cross_entropy").result()
check("chunks in any order", len(many.loss_fn_outputs) == 1030, f"{loss_of(many):.1f}")
training.optim_step(types.AdamParams(learning_rate=0.0)).result()

# Checkpoints
state = training.save_state("mid").result()
check("save_state", state.path.endswith("/weights/mid"), state.path)
expected = loss_of(training.forward_backward(DATA, "cross_entropy").result())
training.optim_step(ADAM).result()
after = loss_of(training.forward(DATA, "cross_entropy").result())
resumed = service.create_training_client_from_state_with_optimizer(state.path)
check("resume gives the same loss", abs(loss_of(resumed.forward_backward(DATA, "cross_entropy").result()) - expected) < 1e-4)
resumed.optim_step(ADAM).result()
check("resume with optimizer gives the same step", abs(loss_of(resumed.forward(DATA, "cross_entropy").result()) - after) < 1e-4)
weights_only = service.create_training_client_from_state(state.path)
check("resume weights only", abs(loss_of(weights_only.forward(DATA, "cross_entropy").result()) - expected) < 1e-4)
training.load_state(state.path).result()
check("load_state", abs(loss_of(training.forward(DATA, "cross_entropy").result()) - expected) < 1e-4)
training.load_state_with_optimizer(state.path).result()
check("load_state_with_optimizer", abs(loss_of(training.forward(DATA, "cross_entropy").result()) - expected) < 1e-4)
raises("save_state under an existing name", lambda: training.save_state("mid").result(), "exists")
named = training.save_weights_for_sampler("final").result()
check("save_weights_for_sampler", named.path.endswith("/sampler_weights/final"), named.path)

# Sampling
PROMPT = types.ModelInput.from_ints([10, 21])
sampler = training.save_weights_and_get_sampling_client()
GREEDY = types.SamplingParams(max_tokens=4, temperature=0.0, stop=[])
greedy = sampler.sample(prompt=PROMPT, num_samples=1, sampling_params=GREEDY).result()
check("save_weights_and_get_sampling_client, sample", list(greedy.sequences[0].tokens) == [31, 41, 51, 61], greedy.sequences[0].tokens)
SEEDED = types.SamplingParams(max_tokens=8, seed=7, temperature=1.0, top_k=50, top_p=0.95)
base = service.create_sampling_client(base_model=MODEL)
draws = [base.sample(prompt=PROMPT, num_samples=3, sampling_params=SEEDED).result() for _ in range(2)]
check("samples follow from their seed", [list(s.tokens) for s in draws[0].sequences] == [list(s.tokens) for s in draws[1].sequences])
check("num_samples", len(draws[0].sequences) == 3 and all(len(s.tokens) == len(s.logprobs) for s in draws[0].sequences))
logprobs = base.compute_logprobs(types.ModelInput.from_ints([10, 20, 30])).result()
check("compute_logprobs", len(logprobs) == 3 and logprobs[0] is None and logprobs[1] < 0, logprobs)
top = base.sample(prompt=PROMPT, num_samples=1, sampling_params=GREEDY, include_prompt_logprobs=True, topk_prompt_logprobs=3).result()
check("topk_prompt_logprobs", len(top.topk_prompt_logprobs[1]) == 3, top.topk_prompt_logprobs)
crowd = [base.sample(prompt=PROMPT, num_samples=1, sampling_params=SEEDED) for _ in range(32)]
check("32 concurrent samples", all(len(one.result().sequences) == 1 for one in crowd))
from_path = service.create_sampling_client(model_path=named.path)
check("create_sampling_client(model_path)", list(from_path.sample(prompt=PROMPT, num_samples=1, sampling_params=GREEDY).result().sequences[0].tokens) == [31, 41, 51, 61])
if NEW:
    check("sequence ids", all(s.sequence_id for s in draws[0].sequences))
    attempt("get_base_model", lambda: from_path.get_base_model())
    FOUR = types.ModelInput.from_ints([10, 20, 30, 40])
    ONE = types.SamplingParams(max_tokens=1, seed=1)
    whole = base.compute_logprobs(FOUR).result()
    last = base.compute_logprobs(FOUR, prompt_logprobs_last_n=2).result()
    check("prompt_logprobs_last_n", last == [None, None, *whole[2:]], last)
    wanted = types.TensorData(data=[20, -1, 30, 7, -1, 40], dtype="int64", shape=[3, 2])
    scored = base.sample(prompt=FOUR, num_samples=1, sampling_params=ONE, target_prompt_logprobs=wanted).result().target_prompt_logprobs
    cells = [float(x) for x in scored.data]
    check("target_prompt_logprobs", list(scored.shape) == [3, 2] and [cells[i] for i in (0, 2, 5)] == whole[1:] and cells[1] == cells[4] == 0.0, cells)
    sparse = types.TensorData(data=[40], dtype="int64", shape=[3, 1], sparse_crow_indices=[0, 0, 0, 1], sparse_col_indices=[0])
    scored = base.sample(prompt=FOUR, num_samples=1, sampling_params=ONE, target_prompt_logprobs=sparse).result().target_prompt_logprobs
    check("target_prompt_logprobs, sparse", [float(x) for x in scored.data] == whole[3:] and list(scored.sparse_crow_indices) == [0, 0, 0, 1], scored.data)
    drawn = base.sample(prompt=FOUR, num_samples=1, sampling_params=ONE, prompt_alt_tokens_k=5).result().prompt_alt_tokens
    check("prompt_alt_tokens_k", list(drawn.tokens.shape) == [3, 5] == list(drawn.logprobs.shape) and all(x <= 0 for x in drawn.logprobs.data), list(drawn.tokens.data))

# RL: sample, reward, importance sampling
policy = service.create_lora_training_client(base_model=MODEL, rank=8, seed=2)
rewards = []
for step in range(8):
    actor = policy.save_weights_and_get_sampling_client()
    drawn = actor.sample(prompt=PROMPT, num_samples=64, sampling_params=types.SamplingParams(max_tokens=1, seed=step, stop=[])).result()
    scores = [1.0 if s.tokens[0] % 3 == 1 else 0.0 for s in drawn.sequences]
    mean = sum(scores) / len(scores)
    rewards.append(mean)
    batch = [
        types.Datum(
            model_input=types.ModelInput.from_ints([10, 21]),
            loss_fn_inputs={
                "target_tokens": [21, s.tokens[0]],
                "logprobs": [0.0, s.logprobs[0]],
                "advantages": [0.0, score - mean],
            },
        )
        for s, score in zip(drawn.sequences, scores)
    ]
    policy.forward_backward(batch, "importance_sampling").result()
    policy.optim_step(types.AdamParams(learning_rate=2e-2)).result()
check("RL loop increases the reward", rewards[-1] > rewards[0] + 0.1, f"{rewards[0]:.2f} -> {rewards[-1]:.2f}")
for loss in ("ppo", "cispo"):
    attempt(f"loss {loss}", lambda loss=loss: loss_of(policy.forward_backward(batch, loss).result()))
attempt("loss dro", lambda: loss_of(policy.forward_backward(batch, "dro", loss_fn_config={"beta": 0.1}).result()))


# Our SDK (peer.ts) must give the same numbers for the same training on the same server.


def peer(seed):
    script = Path(__file__).with_name("peer.ts")
    root = script.parent.parent.parent
    done = subprocess.run(["node", "--import", "tsx", str(script), BASE_URL, MODEL, str(seed)], cwd=root, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def numbers(result):
    return {"loss": loss_of(result), "logprobs": [[float(x) for x in out["logprobs"].data] for out in result.loss_fn_outputs]}


def reference(seed):
    client = service.create_lora_training_client(base_model=MODEL, rank=8, seed=seed)
    adam = types.AdamParams(learning_rate=5e-3, weight_decay=0.01, grad_clip_norm=1.0)

    def batch(inputs):
        return [
            types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": tokens[1:], **inputs(i)})
            for i, tokens in enumerate(PAIRS)
        ]

    supervised = batch(lambda _: {"weights": [0.5, 1.0, 1.0, 1.0, 2.0]})
    reinforced = batch(lambda i: {"logprobs": [-1.0, -1.5, -2.0, -2.5, -3.0], "advantages": [1.0 if i % 2 == 0 else -0.5] * 5})
    passes = []
    for data, loss in [(supervised, "cross_entropy")] * 6 + [(reinforced, "ppo")] * 2:
        both = client.forward_backward(data, loss), client.optim_step(adam)
        passes.append(numbers(both[0].result()))
        both[1].result()
    sampling = client.save_weights_and_get_sampling_client()
    params = types.SamplingParams(max_tokens=8, seed=7, temperature=1.0, top_k=50, top_p=0.95, stop=[])
    drawn = sampling.sample(prompt=PROMPT, num_samples=3, sampling_params=params, include_prompt_logprobs=True).result()
    return {
        "passes": passes,
        "samples": [{"tokens": [int(t) for t in s.tokens], "logprobs": [float(x) for x in s.logprobs]} for s in drawn.sequences],
        "prompt": float(drawn.prompt_logprobs[1]),
    }


try:
    official, ours, other = reference(11), peer(11), peer(12)
    shown = " ".join(f"{one['loss']:.4f}" for one in ours["passes"])
    check("our SDK with the same seed gives identical losses", [p["loss"] for p in ours["passes"]] == [p["loss"] for p in official["passes"]], shown)
    check("our SDK with the same seed gives identical log probabilities", ours["passes"] == official["passes"] and ours["prompt"] == official["prompt"])
    check("our SDK with the same seed gives identical samples", ours["samples"] == official["samples"], ours["samples"][0]["tokens"])
    check("our SDK with another seed gives different losses", [p["loss"] for p in other["passes"]][1:] != [p["loss"] for p in official["passes"]][1:])
except Exception as error:  # noqa: BLE001
    traceback.print_exc()
    check("our SDK trains identically", False, f"{type(error).__name__}: {error}")

# Management
rest = service.create_rest_client()
RUN = info.model_id
runs = rest.list_training_runs(limit=2).result()
check("list_training_runs", len(runs.training_runs) == 2 and runs.cursor.total_count >= 3, runs.cursor)
check("get_training_run", rest.get_training_run(RUN).result().base_model == MODEL)
check("get_training_run_by_tinker_path", rest.get_training_run_by_tinker_path(state.path).result().training_run_id == RUN)
check("list_checkpoints", {c.checkpoint_id for c in rest.list_checkpoints(RUN).result().checkpoints} == {"weights/mid", "sampler_weights/final"})
check("list_user_checkpoints", rest.list_user_checkpoints(limit=1).result().cursor.total_count >= 2)
check("get_weights_info_by_tinker_path", rest.get_weights_info_by_tinker_path(state.path).result().lora_rank == 8)
attempt("publish_checkpoint", lambda: rest.publish_checkpoint_from_tinker_path(state.path).result())
check("a published checkpoint is public", any(c.public for c in rest.list_checkpoints(RUN).result().checkpoints))
attempt("unpublish_checkpoint", lambda: rest.unpublish_checkpoint_from_tinker_path(state.path).result())
attempt("set_checkpoint_ttl", lambda: rest.set_checkpoint_ttl_from_tinker_path(state.path, 3600).result())
attempt("remove ttl", lambda: rest.set_checkpoint_ttl_from_tinker_path(state.path, None).result())
check("list_sessions", RUN.split(":")[0] in rest.list_sessions().result().sessions)
check("get_session", RUN in rest.get_session(RUN.split(":")[0]).result().training_run_ids)
check("get_sampler", rest.get_sampler(next(iter(rest.get_session(RUN.split(":")[0]).result().sampler_ids))).result().base_model == MODEL)
if NEW:
    copied = attempt("copy_weights", lambda: rest.copy_weights(state.path, destination_project_id="p").result())
    external = attempt("save_weights_external", lambda: training.save_weights_external("ext").result().path)
    if external:
        urls = rest.get_external_weights_urls(external).result()
        check("get_external_weights_urls", set(urls.urls) == {"adapter_config.json", "adapter_model.safetensors"}, list(urls.urls))
else:
    archive = attempt("get_checkpoint_archive_url", lambda: rest.get_checkpoint_archive_url_from_tinker_path(named.path).result().url)
    if archive:
        import urllib.request, tarfile, io  # noqa: E401

        tar = tarfile.open(fileobj=io.BytesIO(urllib.request.urlopen(archive).read()))
        check("checkpoint archive", set(tar.getnames()) == {"adapter_config.json", "adapter_model.safetensors"}, tar.getnames())

# Async
async def in_async():
    client = await service.create_lora_training_client_async(base_model=MODEL, rank=4)
    first = await client.forward_backward_async(DATA, "cross_entropy")
    second = await client.optim_step_async(ADAM)
    one, _ = await first.result_async(), await second.result_async()
    saved = await (await client.save_state_async("async")).result_async()
    sampling = await client.save_weights_and_get_sampling_client_async()
    sampled = await sampling.sample_async(prompt=PROMPT, num_samples=2, sampling_params=SEEDED)
    again = await service.create_training_client_from_state_with_optimizer_async(saved.path)
    await (await again.load_state_async(saved.path)).result_async()
    listed = await rest.list_checkpoints_async((await client.get_info_async()).model_id)
    return loss_of(one) > 0 and len(sampled.sequences) == 2 and len(listed.checkpoints) == 1


attempt("async: train, save, sample, resume, list", lambda: asyncio.run(in_async()) or 1 / 0)

# Errors: reported quickly and with the field, and the client can continue after each
raises("unknown base model", lambda: created(service.create_lora_training_client(base_model="no/such")), "no/such")
raises("rank above the maximum", lambda: created(service.create_lora_training_client(base_model=MODEL, rank=100000)), "rank")
raises("token outside the vocabulary", lambda: training.forward_backward([datum([1, 999999, 3])], "cross_entropy").result(), "999999")
raises("unknown loss", lambda: training.forward_backward(DATA, "no_such_loss").result(), "no_such_loss")
raises("targets of the wrong length", lambda: training.forward_backward([types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]), loss_fn_inputs={"target_tokens": [1, 2], "weights": [1.0, 1.0]})], "cross_entropy").result(), "target_tokens")
raises("missing checkpoint", lambda: training.load_state(f"tinker://{RUN}/weights/nothing").result(), "nothing")
raises("checkpoint name with a path", lambda: training.save_state("../up").result(), "path")
raises("sampler of a missing checkpoint", lambda: created(service.create_sampling_client(model_path=f"tinker://{RUN}/sampler_weights/nothing")), "nothing")
raises("prompt outside the vocabulary", lambda: base.sample(prompt=types.ModelInput.from_ints([5000]), num_samples=1, sampling_params=GREEDY).result(), "5000")
check("the client continues after errors", abs(loss_of(training.forward(DATA, "cross_entropy").result()) - expected) < 1e-4)

# The command line


def command(name, *arguments, contains=""):
    done = subprocess.run([TINKER, *arguments], capture_output=True, text=True, timeout=120)
    output = (done.stdout + done.stderr).strip().replace("\n", " | ")
    fine = done.returncode == 0 and contains in done.stdout
    check(f"tinker {name}", fine, output[:140] if fine else f"exit {done.returncode}: {output}")


command("version", "version")
command("run list", "-f", "json", "run", "list", contains=RUN)
command("run info", "-f", "json", "run", "info", RUN, contains=MODEL)
command("checkpoint list", "-f", "json", "checkpoint", "list", "--run-id", RUN, contains="weights/mid")
command("checkpoint info", "-f", "json", "checkpoint", "info", state.path, contains="mid")
command("checkpoint publish", "checkpoint", "publish", state.path)
command("checkpoint unpublish", "checkpoint", "unpublish", state.path)
command("checkpoint set-ttl", "checkpoint", "set-ttl", state.path, "--ttl", "3600")
if NEW:
    command("model list", "-f", "json", "model", "list", contains=MODEL)
command("checkpoint download", "checkpoint", "download", state.path if NEW else named.path, "-o", "downloaded", "--force")
command("checkpoint delete", "checkpoint", "delete", named.path, "-y")
raises("a deleted checkpoint cannot be found", lambda: rest.get_weights_info_by_tinker_path(named.path).result(), "404")

if hasattr(service, "close"):
    attempt("close", lambda: service.close("success"))

print(json.dumps({"tinker": tinker.__version__, "failed": failed}))
print(f"{len(passed)} passed, {len(failed)} failed", flush=True)
os._exit(1 if failed else 0)
