"""Trains a model that ships with @effect-tinker/engine, and its tokenizer, on the text of make_text.py or, for the
model that uses tools, make_agent_text.py.

    python train_base.py valley --out packages/engine/model
    python train_base.py tools --out packages/engine/model-tools

Needs torch, transformers, tokenizers, safetensors and jinja2 (see `scripts/engine/run`), and about half an hour on one
core. Running a model needs none of them.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import random
import re
import time
from typing import Any, Callable

import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

import make_agent_text
import make_text

PAD, DOCUMENT, TURN, END = "<|pad|>", "<|document|>", "<|turn|>", "<|end|>"
SPECIAL = [PAD, DOCUMENT, TURN, END]
TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
TOOLS_TEMPLATE = (
    "{% if tools %}<|turn|>system\n"
    "{% if messages and messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}\n\n{% endif %}Tools:"
    "{% for tool in tools %}{% set tool = tool['function'] if 'function' in tool else tool %}"
    "{{ '\\n' + tool['name'] }}({% for name in tool['parameters']['properties'] %}{% if not loop.first %}, {% endif %}{{ name }}"
    "{% endfor %}): {{ tool['description'] }}{% endfor %}<|end|>\n{% endif %}"
    "{% for message in messages %}{% if not (tools and loop.first and message['role'] == 'system') %}"
    "<|turn|>{{ message['role'] }}\n"
    "{% if message['reasoning_content'] %}<think>\n{{ message['reasoning_content'] }}\n</think>\n\n{% endif %}"
    "{% if message['role'] == 'tool' %}<tool_response>\n{{ message['content'] }}\n</tool_response>"
    "{% else %}{{ message['content'] or '' }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}"
    "{% set call = call['function'] if 'function' in call else call %}"
    "{% if not loop.first or message['content'] %}{{ '\\n' }}{% endif %}<tool_call>\n"
    "{\"name\": {{ call['name'] | tojson }}, \"arguments\": "
    "{% if call['arguments'] is string %}{{ call['arguments'] }}{% else %}{{ call['arguments'] | tojson }}{% endif %}}\n"
    "</tool_call>{% endfor %}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@dataclasses.dataclass
class Recipe:
    """What to train. `body` writes the content of a message, `split` is the pattern that the tokenizer splits by."""
    documents: Callable[[int], Any]
    body: Callable[[dict], str]
    template: str
    split: str
    tags: list[str]
    # The sizes of the model, or the directory of the model to begin with.
    shape: dict[str, int] | pathlib.Path
    steps: int
    rate: float
    # The learning rate as a share of the highest one, given the share of steps done.
    decay: Callable[[float], float]
    # The rows and tokens of a step, given the share of steps done. Contexts are long only at the end, to limit the cost.
    batch: Callable[[float], tuple[int, int]]
    tests: list[tuple[str, bool]]


def cosine(done):
    return 0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2


def late(done):
    """Falls only at the end. Until then nothing depends on the number of steps, so that it can be chosen late."""
    return min(1.0, 0.02 + 0.98 * (1 - done) / 0.35)


RECIPES = {
    "valley": Recipe(
        documents=make_text.documents, body=lambda message: message["content"], template=TEMPLATE,
        # Digits are separate tokens, so that numbers are spelled out.
        split=r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s", tags=[],
        shape={"hidden_size": 160, "intermediate_size": 448, "num_hidden_layers": 5, "num_attention_heads": 4},
        steps=1900, rate=4e-3, decay=cosine, batch=lambda done: (16, 256) if done < 0.85 else (4, 1024),
        tests=[("copy", True), ("count", True), ("add", False), ("add", True), ("world", False), ("pick", False),
               ("talk", False)]),
    "tools": Recipe(
        documents=make_agent_text.documents, body=make_agent_text.body, template=TOOLS_TEMPLATE,
        # A name has the same tokens after a space as between quotes, so that it can be copied into a call.
        split=r"\p{N}| ?\p{Ll}+|\p{Lu}\p{Ll}*|\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s", tags=TAGS,
        # Begins with the other model, which copies words: learning that takes most of the time.
        shape=pathlib.Path(__file__).parents[2] / "packages/engine/model",
        steps=600, rate=2e-3, decay=late, batch=lambda done: (14, 288) if done < 0.85 else (4, 1024),
        tests=[("copy", True), ("add", False), ("world", False), ("talk", False)]),
}


def segments(document, body):
    """Splits a document into parts with a token weight each; answers of the model have the highest weight."""
    if isinstance(document, str):
        return [(document, 1.0)]
    pieces = []
    for message in document:
        own = message["role"] == "assistant"
        pieces.append((f"{TURN}{message['role']}\n", 0.1))
        pieces.append((f"{body(message)}{END}", 1.0 if own else 0.05))
        pieces.append(("\n", 0.1))
    return pieces


def text_of(document, body):
    return "".join(text for text, _ in segments(document, body))


def train_tokenizer(recipe, seed, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(recipe.split), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    stream = recipe.documents(seed)
    trainer = trainers.BpeTrainer(vocab_size=vocabulary - len(recipe.tags), special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = (text_of(next(stream), recipe.body) for _ in range(20000))
    tags = re.compile("|".join(recipe.tags))
    tokenizer.train_from_iterator((tags.sub("", text) for text in texts) if recipe.tags else texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in recipe.tags])
    return tokenizer


def tokens_and_weights(recipe, tokenizer, seed):
    """Yields documents endlessly. Chats contain their special tokens in the text."""
    document_end = tokenizer.token_to_id(DOCUMENT)
    for document in recipe.documents(seed):
        for text, weight in segments(document, recipe.body):
            for token in tokenizer.encode(text).ids:
                yield token, weight
        yield document_end, 0.5


def batches(recipe, tokenizer, options):
    stream = tokens_and_weights(recipe, tokenizer, options.seed + 1)
    step = 0
    while True:
        rows, length = recipe.batch(step / options.steps)
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


def fresh(shape, tokenizer):
    end, pad = (tokenizer.token_to_id(t) for t in (END, PAD))
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(), **shape, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024,
        rope_theta=10000.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=end, pad_token_id=pad,
        rms_norm_eps=1e-6)
    model = Qwen3ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and ("o_proj" in name or "down_proj" in name):
            torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.num_hidden_layers))
    return model


def grown(directory, tokenizer):
    """Returns a model with the vocabulary of another tokenizer: a token starts as the mean of what it was before."""
    model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    before = Tokenizer.from_file(str(directory / "tokenizer.json"))
    old = model.get_input_embeddings().weight.detach().clone()
    known = before.get_vocab()
    rows = []
    for token in range(tokenizer.get_vocab_size()):
        name = tokenizer.id_to_token(token)
        ids = [known[name]] if name in known else before.encode(tokenizer.decode([token], skip_special_tokens=False)).ids
        rows.append(old[ids].mean(0))
    model.resize_token_embeddings(len(rows))
    model.get_input_embeddings().weight.data.copy_(torch.stack(rows))
    return model


@torch.no_grad()
def answer(model, tokenizer, prompt, limit=48):
    ids = tokenizer.encode(prompt).ids
    end = tokenizer.token_to_id(END)
    output = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                            max_new_tokens=limit, do_sample=False, eos_token_id=end, pad_token_id=0)
    return tokenizer.decode(output[0, len(ids):].tolist(), skip_special_tokens=True)


def accuracy(recipe, model, tokenizer, count):
    model.eval()
    table = {}
    for kind, unseen in recipe.tests:
        questions = make_text.test_questions(99, kind, count, unseen)
        right = sum(answer(model, tokenizer, f"{TURN}user\n{asked}{END}\n{TURN}assistant\n") == wanted
                    for asked, wanted in questions)
        table[f"{kind} ({'held out' if unseen else 'seen'})"] = right / count
    if recipe.tags:
        rng = random.Random(99)
        for thinks in (False, True):
            right = sum(solves(recipe, model, tokenizer, rng, thinks) for _ in range(count))
            table["tasks with tools (held out), thinking" if thinks else "tasks with tools (held out)"] = right / count
    model.train()
    return table


def solves(recipe, model, tokenizer, rng, thinks):
    """Returns whether the model writes every message of a held-out task as it should, without giving up."""
    messages = make_agent_text.test_task(rng, thinks)
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = text_of(messages[:at], recipe.body) + f"{TURN}assistant\n"
        if answer(model, tokenizer, prompt, limit=120) != recipe.body(message):
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="default: those of the recipe")
    parser.add_argument("--rate", type=float, help="default: that of the recipe")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--state", type=pathlib.Path, help="a file to continue from, written every 25 steps")
    parser.add_argument("--questions", type=int, default=200, help="for each row of the test")
    options = parser.parse_args()
    recipe = RECIPES[options.recipe]
    options.steps = options.steps or recipe.steps
    options.rate = options.rate or recipe.rate
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    tokenizer = train_tokenizer(recipe, options.seed, vocabulary=1024)
    model = grown(recipe.shape, tokenizer) if isinstance(recipe.shape, pathlib.Path) else fresh(recipe.shape, tokenizer)
    config = model.config
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {config.vocab_size} tokens", flush=True)

    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    optimizers = [Orthogonal(matrices, lr=options.rate, decay=0.05),
                  torch.optim.AdamW(others, lr=options.rate, betas=(0.9, 0.95), weight_decay=0.0)]

    def rate_of(step):
        warm = min(1.0, (step + 1) / 50)
        return options.rate * warm * recipe.decay(step / options.steps)

    began = time.time()
    first, smooth = 0, None
    if options.state is not None and options.state.exists():
        state = torch.load(options.state)
        first, smooth = state["step"], state["smooth"]
        began -= state["seconds"]
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
    for step, (ids, weights) in enumerate(batches(recipe, tokenizer, options)):
        if step == options.steps:
            break
        if step < first:
            continue
        if options.state is not None and step > first and step % 25 == 0:
            torch.save({"step": step, "smooth": smooth, "seconds": time.time() - began, "model": model.state_dict(),
                        "optimizers": [optimizer.state_dict() for optimizer in optimizers]}, options.state)
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
            print(json.dumps(accuracy(recipe, model, tokenizer, 10)), flush=True)

    # Tests the weights as they are shipped, rounded to 16 bits.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)
    seconds = round(time.time() - began)
    save(recipe, options.out, model, tokenizer)
    table = accuracy(recipe, model, tokenizer, options.questions)
    print(json.dumps(table), flush=True)
    (options.out / "training.json").write_text(json.dumps({
        "steps": options.steps, "seed": options.seed, "rate": options.rate, "seconds": seconds,
        "questions": options.questions, "accuracy": table}, indent=2) + "\n")


def save(recipe, out, model, tokenizer):
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out, safe_serialization=True)
    model.to(torch.float32)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"pad_token": PAD, "eos_token": END}
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", **special, "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_position_embeddings, "chat_template": recipe.template}, indent=2) + "\n")
    check_template(recipe, AutoTokenizer.from_pretrained(out))


def check_template(recipe, tokenizer):
    """Fails if the chat template does not write what the model was trained on."""
    stream = recipe.documents(2)
    chats = [chat for chat in (next(stream) for _ in range(200)) if isinstance(chat, list)]
    for chat in chats:
        messages = [{"role": message["role"], "content": message["content"],
                     **({"reasoning_content": message["thinking"]} if message.get("thinking") else {}),
                     **({"tool_calls": [{"type": "function", "function": call} for call in message["calls"]]}
                        if "calls" in message else {})} for message in chat]
        written = tokenizer.apply_chat_template(messages, tokenize=False)
        assert written == text_of(chat, recipe.body), "the template is not what was trained"
    if recipe.tags:
        chat = make_agent_text.agent(random.Random(3))
        lines = [re.fullmatch(r"(\w+)\((.*)\): (.*)", line) for line in chat[0]["content"].split("Tools:\n")[1].split("\n")]
        tools = [{"type": "function", "function": {
            "name": name, "description": description,
            "parameters": {"type": "object", "properties": {key: {"type": "string"} for key in keys.split(", ")}}}}
            for name, keys, description in (line.groups() for line in lines)]
        said = [{"role": "user", "content": "Hello"}]
        wanted = f"{TURN}system\n" + chat[0]["content"][chat[0]["content"].index("Tools:"):] + f"{END}\n{TURN}user\nHello{END}\n"
        assert tokenizer.apply_chat_template(said, tools=tools, tokenize=False) == wanted, "the tools are written otherwise"


if __name__ == "__main__":
    main()
