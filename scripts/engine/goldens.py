"""Writes goldens of torch and transformers for tiny random models: logits, losses with LoRA gradients, runs of AdamW and
Dimuon.

    scripts/engine/run goldens [--check]     writes packages/engine/test/goldens, or compares without writing

The engine tests compare with these files. Sequences have different lengths, one longer than an attention block; B of
the adapter is not zero, so that every gradient is nonzero.
"""

import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

OUT = pathlib.Path(sys.argv[1])
RANK, ALPHA = 3, 32.0
LENGTHS = [5, 70, 1, 18]
torch.set_num_threads(1)
logging.disable_progress_bar()


def shape(**more):
    return dict(vocab_size=61, hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=96, rms_norm_eps=1e-5, initializer_range=0.3,
                attn_implementation="eager", bos_token_id=None, eos_token_id=2, pad_token_id=None, **more)


MODELS = {
    "llama-f32-free-sharded": (LlamaForCausalLM, LlamaConfig(**shape(head_dim=10, tie_word_embeddings=False)), torch.float32, "20KB"),
    "llama-f16-tied": (LlamaForCausalLM, LlamaConfig(**shape(head_dim=8, tie_word_embeddings=True, rope_theta=500.0)), torch.float16, "1GB"),
    "qwen3-bf16-tied": (Qwen3ForCausalLM, Qwen3Config(**shape(head_dim=16, tie_word_embeddings=True)), torch.bfloat16, "1GB"),
    "qwen3-f32-free": (Qwen3ForCausalLM, Qwen3Config(**shape(head_dim=12, tie_word_embeddings=False)), torch.float32, "1GB"),
}


class Lora(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.a = torch.nn.Parameter(torch.randn(RANK, linear.in_features) * 0.3)
        self.b = torch.nn.Parameter(torch.randn(linear.out_features, RANK) * 0.02)

    def forward(self, x):
        return self.linear(x) + (x @ self.a.T @ self.b.T) * (ALPHA / RANK)


def with_lora(model):
    found = {}
    for p in model.parameters():
        p.requires_grad_(False)
    for i, layer in enumerate(model.model.layers):
        for part, names in [("self_attn", "q_proj k_proj v_proj o_proj"), ("mlp", "gate_proj up_proj down_proj")]:
            for name in names.split():
                wrapped = Lora(getattr(getattr(layer, part), name))
                setattr(getattr(layer, part), name, wrapped)
                found[f"base_model.model.model.layers.{i}.{part}.{name}"] = wrapped
    model.lm_head = found["base_model.model.lm_head"] = Lora(model.lm_head)
    return found


def save_file(tensors, path, metadata=None):
    """Writes deterministic bytes: safetensors itself writes the metadata in any order."""
    blob = save(tensors, metadata)
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + size])
    if metadata is not None:
        header["__metadata__"] = dict(sorted(metadata.items()))
    path.write_bytes(blob[:8] + json.dumps(header, separators=(",", ":")).encode().ljust(size) + blob[8 + size:])


def tensors_of(found, pick):
    out = {}
    for name, lora in found.items():
        out[f"{name}.lora_A.weight"] = pick(lora.a).detach().clone().contiguous()
        out[f"{name}.lora_B.weight"] = pick(lora.b).detach().clone().contiguous()
    return out


def logprobs(model, data):
    return [torch.log_softmax(model(d["tokens"][None]).logits[0].float(), -1) for d in data]


def chosen(rows, targets):
    return rows.gather(1, targets if targets.dim() == 2 else targets[:, None]).reshape(targets.shape)


def losses(data):
    def each(f):
        return lambda rows: sum(f(chosen(r, d["target_tokens"]), d).sum() for r, d in zip(rows, data))

    def ratio(lp, d):
        return torch.exp(lp - d["logprobs"])

    def clip(r, low=0.8, high=1.2):
        return torch.clamp(r, low, high)

    def gspo(lp, d):
        log_ratio = (lp.detach() - d["logprobs"])[d["sequence_ratio_mask"] != 0].mean()
        r = torch.exp(log_ratio + lp - lp.detach())
        return -torch.minimum(r * d["advantages"], clip(r, 0.95, 1.05) * d["advantages"])

    return {
        "cross_entropy": ({}, ["weights"], each(lambda lp, d: -lp * d["weights"])),
        "importance_sampling": ({}, ["logprobs", "advantages"], each(lambda lp, d: -ratio(lp, d) * d["advantages"])),
        "ppo": ({"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}, ["logprobs", "advantages", "weights"],
                each(lambda lp, d: -d["weights"] * torch.minimum(ratio(lp, d) * d["advantages"], clip(ratio(lp, d), 0.7, 1.3) * d["advantages"]))),
        "cispo": ({}, ["logprobs", "advantages"], each(lambda lp, d: -clip(ratio(lp, d)).detach() * d["advantages"] * lp)),
        "gspo": ({"clip_low_threshold": 0.95, "clip_high_threshold": 1.05}, ["logprobs", "advantages", "sequence_ratio_mask"], each(gspo)),
        "dro": ({"beta": 0.2}, ["logprobs", "advantages"],
                each(lambda lp, d: -(lp * d["advantages"] - 0.5 * 0.2 * (lp - d["logprobs"]) ** 2))),
    }


def orthogonal(x):
    """The iteration of Muon, scaled to the norm of an exact factor of a matrix of rank RANK."""
    wide = x.size(0) > x.size(1)
    x = x.T if wide else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return (x.T if wide else x) * (math.sqrt(RANK) / x.norm())


def main():
    for number, (name, (kind, config, dtype, shard)) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        folder = OUT / name
        model = kind(config).eval()
        for key, p in model.named_parameters():
            if p.dim() == 1:
                torch.nn.init.uniform_(p, 0.5, 1.5)
        model = model.to(dtype)
        model.save_pretrained(folder, max_shard_size=shard)
        # Loaded again: a cast would also round the frequencies of the rotary embedding, which are not in the file.
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        data = []
        for n in LENGTHS:
            data.append({"tokens": torch.randint(0, 61, (n,)), "target_tokens": torch.randint(0, 61, (n,)),
                         "weights": torch.rand(n) * (torch.rand(n) > 0.3), "advantages": torch.randn(n)})
        with torch.no_grad():
            plain = {f"logits.{i}": model(d["tokens"][None]).logits[0].contiguous() for i, d in enumerate(data)}
        save_file(plain, folder / "logits.safetensors")
        meta = {"tokens": [d["tokens"].tolist() for d in data]}
        if dtype == torch.float32:
            found = with_lora(model)
            with torch.no_grad():
                rows = logprobs(model, data)
                for r, d in zip(rows, data):
                    # Close enough for ratios on both sides of the clips.
                    d["logprobs"] = chosen(r, d["target_tokens"]) + 0.3 * torch.randn(len(d["tokens"]))
            saved = {"effect_tinker": "effect-tinker-adapter-1", "shape": json.dumps(
                {"rank": RANK, "alpha": ALPHA, "seed": 0, "trainAttn": True, "trainMlp": True, "trainUnembed": True})}
            save_file(tensors_of(found, lambda p: p), folder / "adapter.safetensors", metadata=saved)
            for d in data:
                mask = (torch.rand(len(d["tokens"]), generator=torch.Generator().manual_seed(len(d["tokens"]))) > 0.4).float()
                d["sequence_ratio_mask"] = mask if mask.any() else torch.ones_like(mask)
            meta["data"] = [{k: v.tolist() for k, v in d.items() if k != "tokens"} for d in data]
            meta["losses"] = {}
            gradients = {}

            def record(key, settings, inputs, f, data):
                model.zero_grad()
                rows = logprobs(model, data)
                value = f(rows)
                value.backward()
                meta["losses"][key] = {"config": settings, "inputs": inputs, "sum": value.item()}
                for path, grad in tensors_of(found, lambda p: p.grad).items():
                    gradients[f"{key}/{path}"] = grad

            for key, (settings, inputs, f) in losses(data).items():
                record(key, settings, inputs, f, data)
            wide = [{**d, "target_tokens": torch.randint(0, 61, (len(d["tokens"]), 3)), "weights": torch.rand(len(d["tokens"]), 3)} for d in data]
            meta["wide"] = [{k: d[k].tolist() for k in ("target_tokens", "weights")} for d in wide]
            record("cross_entropy_nk", {}, ["weights"],
                   lambda rows: sum((-chosen(r, d["target_tokens"]) * d["weights"]).sum() for r, d in zip(rows, wide)), wide)
            # An arbitrary loss of the log probabilities; the engine gets it in linear form.
            record("custom", {}, [], lambda rows: sum(
                (chosen(r, d["target_tokens"]) ** 2).sum() * 0.1 for r, d in zip(rows, data)), data)
            save_file(gradients, folder / "gradients.safetensors")

            parameters = [p for lora in found.values() for p in (lora.a, lora.b)]
            start = [p.detach().clone() for p in parameters]
            optimizer = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.1)
            meta["adamw"] = []
            for _ in range(6):
                optimizer.zero_grad()
                value = losses(data)["cross_entropy"][2](logprobs(model, data))
                value.backward()
                norm = torch.nn.utils.clip_grad_norm_(parameters, 20.0)
                optimizer.step()
                meta["adamw"].append({"loss": value.item(), "norm": norm.item()})
            save_file(tensors_of(found, lambda p: p), folder / "trained.safetensors")

            for p, value in zip(parameters, start):
                p.data.copy_(value)
            momenta = [torch.zeros_like(p) for p in parameters]
            meta["dimuon"] = []
            for _ in range(6):
                for p in parameters:
                    p.grad = None
                value = losses(data)["cross_entropy"][2](logprobs(model, data))
                value.backward()
                norm = torch.nn.utils.clip_grad_norm_(parameters, 20.0)
                with torch.no_grad():
                    for p, m in zip(parameters, momenta):
                        m.mul_(0.9).add_(p.grad, alpha=0.1)
                        p.sub_(orthogonal(m), alpha=1e-2)
                meta["dimuon"].append({"loss": value.item(), "norm": norm.item()})
            save_file(tensors_of(found, lambda p: p), folder / "dimuon.safetensors")
        (folder / "golden.json").write_text(json.dumps(meta) + "\n")
        for extra in ("generation_config.json",):
            (folder / extra).unlink(missing_ok=True)


main()

# Questions that the base model never saw, except for "world" and "talk", which it learns by heart.
import make_text  # noqa: E402

(OUT / "questions.json").write_text(json.dumps({
    kind: make_text.test_questions(4321, kind, 40, kind in ("copy", "count", "add"))
    for kind in ("copy", "count", "add", "world", "talk")}, indent=0) + "\n")
