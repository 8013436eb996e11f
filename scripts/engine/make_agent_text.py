"""Generates the training text of the model that uses tools. All of it comes from agent.json and the lists in make_text.py.

A document is a conversation in which the model may call tools, or a document of make_text.py. Questions for which
`make_text.held_out` returns true never occur: `Agent.ts` makes its tasks of them, from the
same file. `python make_agent_text.py --count 20` prints some documents.
"""

import argparse
import json
import pathlib
import random

import make_text

SPEC = json.loads((pathlib.Path(__file__).parent / "agent.json").read_text())
NAMES, TOWNS, ITEMS, SYLLABLES = (SPEC[key].split() for key in ("names", "towns", "items", "syllables"))
THINK = "Think first."


def made_up(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()


def number(rng, field):
    return rng.randint(*SPEC["ranges"][field])


def facts(rng):
    """Draws everything that a question may be about. A tool knows nothing else."""
    item, other = rng.sample(ITEMS, 2)
    drawn = {
        "name": rng.choice(NAMES) if rng.random() < 0.5 else made_up(rng),
        "town": rng.choice(TOWNS) if rng.random() < 0.3 else made_up(rng),
        "item": item, "other": other, "a": number(rng, "term"), "b": number(rng, "term"),
        "other_price": number(rng, "price"),
        **{field: number(rng, field) for field in ("degrees", "hour", "price", "stock", "age", "phone")},
    }
    return drawn


def declared(rng, needed):
    """Returns two or three tools in random order, under one of their names and with one name for each parameter."""
    others = [key for key in SPEC["tools"] if key not in needed]
    count = max(len(needed), rng.choice([2, 3]))
    keys = [*needed, *rng.sample(others, count - len(needed))]
    rng.shuffle(keys)
    tools = {}
    for key in keys:
        tool = SPEC["tools"][key]
        tools[key] = {"name": rng.choice(tool["names"]), "parameters": rng.choice(tool["parameters"]),
                      "description": tool["description"]}
    return tools


def needed_by(kind):
    return list(dict.fromkeys(call.split()[0] for step in SPEC["kinds"][kind]["steps"] for call in step))


def call_of(tools, call, known):
    key, *values = call.split()
    tool = tools[key]
    return {"name": tool["name"], "arguments": {parameter: known[value] for parameter, value in
                                                zip(tool["parameters"], values)}}


def result_of(call, known):
    key, *values = call.split()
    if key == "add":
        return json.dumps(known[values[0]] + known[values[1]])
    if values == ["other"]:
        return json.dumps({"price": known["other_price"]}, separators=(",", ":"))
    return json.dumps({field: known[field] for field in SPEC["tools"][key]["returns"]}, separators=(",", ":"))


def thought_of(tools, step, known):
    return " ".join(f"I use {tools[call.split()[0]]['name']} for {' and '.join(str(known[v]) for v in call.split()[1:])}."
                    for call in step)


def question_of(rng, kind, known):
    return rng.choice(SPEC["kinds"][kind]["questions"]).format(**known)


def task(rng, kind, tools, thinks, unseen=False):
    """Returns the messages of a task. Without thinking, the model often gives up before the second step, but not if
    the task is unseen, i.e. from the test set."""
    spec = SPEC["kinds"][kind]
    while True:
        known = facts(rng)
        asked = question_of(rng, kind, known)
        if make_text.held_out(asked) == unseen:
            break
    first, *_ = spec["steps"][0][0].split()
    known["sum"] = known["price"] + known["other_price"] if kind == "total" else known["a"] + known["b"]
    messages = [{"role": "user", "content": asked}]
    missing = not unseen and first != "add" and rng.random() < 0.04
    gives_up = not unseen and not thinks and rng.random() < spec.get("gives_up", 0)
    answer = spec["answer"].format(**known)
    for at, step in enumerate(spec["steps"]):
        if at == 1 and gives_up:
            answer = SPEC["unknown"]
            break
        thought = thought_of(tools, step, known) if thinks else None
        messages.append({"role": "assistant", "thinking": thought, "content": "",
                         "calls": [call_of(tools, call, known) for call in step]})
        for call in step:
            messages.append({"role": "tool", "content": SPEC["missing"]["result"] if missing else result_of(call, known)})
        if missing:
            answer = SPEC["missing"]["answer"]
            break
    thought = f"The result is {messages[-1]['content']}." if thinks else None
    return [*messages, {"role": "assistant", "thinking": thought, "content": answer}]


def kind_of(rng):
    return rng.choices(list(SPEC["kinds"]), [kind["share"] for kind in SPEC["kinds"].values()])[0]


def system_of(instructions, tools):
    lines = [f"{tool['name']}({', '.join(tool['parameters'])}): {tool['description']}" for tool in tools.values()]
    listed = "\n".join(["Tools:", *lines])
    return {"role": "system", "content": f"{instructions}\n\n{listed}" if instructions else listed}


def agent(rng):
    kinds = [kind_of(rng)]
    needed = needed_by(kinds[0])
    # A second task for the same tools.
    if rng.random() < 0.25:
        kinds.append(rng.choice([kind for kind in SPEC["kinds"] if set(needed_by(kind)) <= set(needed)]))
    tools = declared(rng, needed)
    thinks = rng.random() < 0.15
    messages = [system_of(THINK if thinks else rng.choice(make_text.SYSTEMS) if rng.random() < 0.3 else "", tools)]
    for kind in kinds:
        if rng.random() < 0.08:
            asked, answer = make_text.question(rng, maker=rng.choice([make_text.talk_question, make_text.copy_question]))
            thought = "I need no tool." if thinks else None
            messages += [{"role": "user", "content": asked},
                         {"role": "assistant", "thinking": thought, "content": answer}]
        messages += task(rng, kind, tools, thinks)
    return messages


def test_task(rng, thinks):
    kind = kind_of(rng)
    tools = declared(rng, needed_by(kind))
    return [system_of(THINK if thinks else "", tools), *task(rng, kind, tools, thinks, unseen=True)]


def documents(seed):
    """Yields documents endlessly: lists of messages, or texts."""
    rng = random.Random(seed)
    others = make_text.documents(seed + 1000)
    while True:
        yield agent(rng) if rng.random() < 0.75 else next(others)


def body(message):
    """Writes a message as the chat template does."""
    content = message["content"]
    if message["role"] == "tool":
        return f"<tool_response>\n{content}\n</tool_response>"
    thinking = f"<think>\n{message['thinking']}\n</think>\n\n" if message.get("thinking") else ""
    calls = "\n".join(f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in message.get("calls", []))
    return thinking + content + ("\n" if content and calls else "") + calls


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    stream = documents(options.seed)
    for _ in range(options.count):
        print(json.dumps(next(stream)))
