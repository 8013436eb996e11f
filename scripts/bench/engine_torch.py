"""The work of scripts/bench/engine.ts in torch on one thread: prints one JSON line for each line it reads."""

import json
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
began = time.process_time()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
loaded = time.process_time() - began
RANK = 8


class Lora(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.a = torch.nn.Parameter(torch.randn(RANK, linear.in_features) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x):
        return self.linear(x) + (x @ self.a.T @ self.b.T) * (32 / RANK)


for p in model.parameters():
    p.requires_grad_(False)
loras = []
for layer in model.model.layers:
    for part in (layer.self_attn, layer.mlp):
        for name, linear in list(part.named_children()):
            if isinstance(linear, torch.nn.Linear):
                loras.append(Lora(linear))
                setattr(part, name, loras[-1])
model.lm_head = Lora(model.lm_head)
loras.append(model.lm_head)
optimizer = torch.optim.AdamW([p for l in loras for p in (l.a, l.b)], lr=1e-4, betas=(0.9, 0.95), eps=1e-12)
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


works = {"train": train, "sample 1": lambda: sample(1), "sample 16": lambda: sample(16)}
for line in sys.stdin:
    start = time.process_time()
    tokens = works[line.strip()]()
    took = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"rate": tokens / took, "memory": memory, "load": loaded}), flush=True)
