"""Trains the base model that ships with @effect-tinker/engine, and its tokenizer, on the text of make_text.py.

    python train_base.py --out packages/engine/model

Needs torch, transformers, tokenizers, safetensors and jinja2 (see `scripts/engine/run`), and about half an hour on one
core. Running the model needs none of them.
"""

import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

import make_text

PAD, DOCUMENT, TURN, END = "<|pad|>", "<|document|>", "<|turn|>", "<|end|>"
SPECIAL = [PAD, DOCUMENT, TURN, END]
TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def segments(document):
    """Splits a document into parts with a token weight each; answers of the model have the highest weight."""
    if isinstance(document, str):
        return [(document, 1.0)]
    pieces = []
    for message in document:
        own = message["role"] == "assistant"
        pieces.append((f"{TURN}{message['role']}\n", 0.1))
        pieces.append((f"{message['content']}{END}", 1.0 if own else 0.05))
        pieces.append(("\n", 0.1))
    return pieces


def text_of(document):
    return "".join(text for text, _ in segments(document))


def train_tokenizer(seed, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    # Digits are separate tokens, so that numbers are spelled out.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    stream = make_text.documents(seed)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((text_of(next(stream)) for _ in range(20000)), trainer)
    return tokenizer


def tokens_and_weights(tokenizer, seed):
    """Yields documents endlessly. Chats contain their special tokens in the text."""
    document_end = tokenizer.token_to_id(DOCUMENT)
    for document in make_text.documents(seed):
        for text, weight in segments(document):
            for token in tokenizer.encode(text).ids:
                yield token, weight
        yield document_end, 0.5


def batches(tokenizer, seed, shape_of):
    stream = tokens_and_weights(tokenizer, seed)
    step = 0
    while True:
        rows, length = shape_of(step)
        drawn = [[next(stream) for _ in range(length + 1)] for _ in range(rows)]
        pair = torch.tensor(drawn, dtype=torch.float64)
        yield pair[:, :, 0].long(), pair[:, 1:, 1].float()
        step += 1


class Orthogonal(torch.optim.Optimizer):
    """Muon: momentum with approximate orthogonalization. The version in torch uses 16 bits, which is slow on a CPU."""

    def __init__(self, parameters, lr, decay):
        super().__init__(parameters, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 0.05)
                x = p.grad.lerp(momentum, 0.95)
                wide = x.size(0) > x.size(1)
                x = x.T if wide else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    square = x @ x.T
                    x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
                p.mul_(1 - group["lr"] * group["decay"])
                # Scaled to the size of an Adam step.
                p.sub_((x.T if wide else x) * (group["lr"] * 0.2 * math.sqrt(max(p.shape))))


@torch.no_grad()
def answer(model, tokenizer, asked, limit=48):
    prompt = f"{TURN}user\n{asked}{END}\n{TURN}assistant\n"
    ids = tokenizer.encode(prompt).ids
    end = tokenizer.token_to_id(END)
    output = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                            max_new_tokens=limit, do_sample=False, eos_token_id=end, pad_token_id=0)
    return tokenizer.decode(output[0, len(ids):].tolist(), skip_special_tokens=True)


def accuracy(model, tokenizer, count):
    model.eval()
    table = {}
    for kind, unseen in [("copy", True), ("count", True), ("add", False), ("add", True), ("world", False), ("pick", False), ("talk", False)]:
        questions = make_text.test_questions(99, kind, count, unseen)
        right = sum(answer(model, tokenizer, asked) == wanted for asked, wanted in questions)
        table[f"{kind} ({'held out' if unseen else 'seen'})"] = right / count
    model.train()
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1900)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--questions", type=int, default=200, help="for each row of the test")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    tokenizer = train_tokenizer(options.seed, vocabulary=1024)
    end, document, pad = (tokenizer.token_to_id(t) for t in (END, DOCUMENT, PAD))
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=160, intermediate_size=448, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, rope_theta=10000.0,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=end, pad_token_id=pad, rms_norm_eps=1e-6)
    model = Qwen3ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and ("o_proj" in name or "down_proj" in name):
            torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.num_hidden_layers))
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {config.vocab_size} tokens", flush=True)

    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    optimizers = [Orthogonal(matrices, lr=options.rate, decay=0.05),
                  torch.optim.AdamW(others, lr=options.rate, betas=(0.9, 0.95), weight_decay=0.0)]

    # Short documents first; long contexts only at the end, to limit their cost.
    def shape_of(step):
        return (16, 256) if step < 0.85 * options.steps else (4, 1024)

    def rate_of(step):
        warm = min(1.0, (step + 1) / 50)
        return options.rate * warm * (0.02 + 0.98 * (1 + math.cos(math.pi * step / options.steps)) / 2)

    began = time.time()
    smooth = None
    for step, (ids, weights) in enumerate(batches(tokenizer, options.seed + 1, shape_of)):
        if step == options.steps:
            break
        logits = model(ids[:, :-1]).logits
        losses = F.cross_entropy(logits.reshape(-1, config.vocab_size), ids[:, 1:].reshape(-1), reduction="none")
        loss = (losses * weights.reshape(-1)).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate_of(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 50 == 0:
            print(f"step {step} loss {smooth:.4f} {time.time() - began:.0f} s", flush=True)
        if step % 500 == 499:
            print(json.dumps(accuracy(model, tokenizer, 30)), flush=True)

    # Tests the weights as they are shipped, rounded to 16 bits.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)
    table = accuracy(model, tokenizer, options.questions)
    print(json.dumps(table), flush=True)
    save(options.out, model, tokenizer, table, options, time.time() - began)


def save(out, model, tokenizer, table, options, seconds):
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"pad_token": PAD, "eos_token": END}
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", **special, "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_position_embeddings, "chat_template": TEMPLATE}, indent=2) + "\n")
    (out / "training.json").write_text(json.dumps({
        "steps": options.steps, "seed": options.seed, "rate": options.rate, "seconds": round(seconds),
        "questions": options.questions, "accuracy": table}, indent=2) + "\n")

    from jinja2 import Environment
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    assert Environment().from_string(TEMPLATE).render(messages=chat) == text_of(chat), "the template is not what was trained"


if __name__ == "__main__":
    main()
