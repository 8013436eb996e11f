"""Runs the workloads of scripts/bench/engine.ts in torch on one thread: answers each JSON line with a JSON line."""

import json
import resource
import sys
import time

import torch
import transformers
from safetensors.torch import load_file

imported = time.process_time()
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()


class Lora(torch.nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.scale = 32 / rank
        self.a = torch.nn.Parameter(torch.randn(rank, linear.in_features) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + (x @ self.a.T @ self.b.T) * self.scale


def load(folder, rank):
    """Loads the model with LoRA on all layers, named as in PEFT, and an optimizer for it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for p in model.parameters():
        p.requires_grad_(False)
    loras = {}
    for i, layer in enumerate(model.model.layers):
        for part in ("self_attn", "mlp"):
            for name, linear in list(getattr(layer, part).named_children()):
                if isinstance(linear, torch.nn.Linear):
                    lora = loras[f"base_model.model.model.layers.{i}.{part}.{name}"] = Lora(linear, rank)
                    setattr(getattr(layer, part), name, lora)
    model.lm_head = loras["base_model.model.lm_head"] = Lora(model.lm_head, rank)
    parameters = [p for lora in loras.values() for p in (lora.a, lora.b)]
    return model, loras, torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)


before = time.process_time()
model, _, optimizer = load(sys.argv[1], 8)
loaded = time.process_time() - before
ids = torch.arange(8 * 128).reshape(8, 128) % 1000


def train():
    logits = model(ids).logits
    torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), ids.reshape(-1), reduction="sum").backward()
    optimizer.step()
    optimizer.zero_grad()
    return 8 * 128


@torch.no_grad()
def sample(count):
    prompt = torch.arange(10)[None].repeat(count, 1)
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, min_new_tokens=64, do_sample=True, pad_token_id=0)
    return 64 * count


def curve(folder, adapter, rank, rate, batches):
    """Returns the losses of a run from the same weights over the same data; one datum at a time, so without padding."""
    own, loras, adam = load(folder, rank)
    tensors = load_file(adapter)
    with torch.no_grad():
        for name, lora in loras.items():
            lora.a.copy_(tensors[f"{name}.lora_A.weight"])
            lora.b.copy_(tensors[f"{name}.lora_B.weight"])
    for group in adam.param_groups:
        group["lr"] = rate
    losses = []
    for batch in batches:
        total = 0.0
        for datum in batch:
            logits = own(torch.tensor([datum["tokens"]])).logits[0]
            each = torch.nn.functional.cross_entropy(logits, torch.tensor(datum["targets"]), reduction="none")
            loss = (each * torch.tensor(datum["weights"])).sum()
            loss.backward()
            total += loss.item()
        adam.step()
        adam.zero_grad()
        losses.append(total)
    return losses


works = {"train": train, "sample 1": lambda: sample(1), "sample 16": lambda: sample(16)}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["work"] == "about":
        # ru_maxrss is in kilobytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answer = {"imports": imported, "load": loaded, "memory": peak, "versions": {
            "python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}}
    elif asked["work"] == "curve":
        answer = {"losses": curve(**{key: value for key, value in asked.items() if key != "work"})}
    else:
        start = time.process_time()
        tokens = sum(works[asked["work"]]() for _ in range(asked["repeat"]))
        answer = {"rate": tokens / (time.process_time() - start)}
    print(json.dumps(answer), flush=True)
