"""Renders random conversations with the vendors' templates of the families that have a renderer, and records the output
and the known differences of our renderers.

    python renderers.py <templates.json> <directory to write> <seed> <cases>

A known difference is a rewrite that makes both sides identical: of the input of our renderer, of the input of the
template, of one of its filters, or of text that it always writes. Writes one file per renderer and template, with one
case per line.
"""

import copy
import json
import re
import sys
from pathlib import Path

import transformers.utils.chat_template_utils as chat
from gold import TOOLS, WORDS, Chance, assistant, call, outcome, result, system, user

DATE = "2026-03-05"
SPECIAL = {"bos_token": "<|begin_of_text|>"}


def spec(name, **changes):
    """Returns a tool in a form that every renderer supports."""
    function = next(one["function"] for one in TOOLS if one["function"]["name"] == name)
    kept = {key: copy.deepcopy(function[key]) for key in ("name", "description", "parameters")}
    kept["parameters"]["properties"].update(changes)
    return {"type": "function", "function": kept}


SPECS = [spec("get_weather"), spec("noop"), spec("search")]
TEXTS = [*WORDS, "<|im_end|>", "<|eot_id|>", "<|end|>"]


class Talk(Chance):
    # How often features occur that not every format supports: tools and thinking.
    special = 1.0

    def text(self):
        return "".join(self.choice(TEXTS) for _ in range(self.randrange(0, 7)))

    def thought(self):
        return {"reasoning_content": self.text() or "hm"} if self.random() < 0.4 * self.special else {}

    def calls(self):
        made = []
        for number in range(self.choice([1, 1, 1, 2, 3])):
            arguments = {self.choice("abcxyz"): self.json() for _ in range(self.randrange(4))}
            style = {"ensure_ascii": self.random() < 0.5, **({"separators": (",", ":")} if self.random() < 0.3 else {})}
            made.append(call(f"call{number}", self.choice(["get_weather", "noop", "search"]), json.dumps(arguments, **style)))
        return made

    def turn(self):
        if self.random() < 0.9:
            yield user(self.text())
        if self.random() < 0.03:
            yield system(self.text())
        if self.random() < 0.45 * self.special:
            for _ in range(self.choice([1, 1, 2])):
                calls = self.calls()
                yield assistant(self.choice(["", self.text()]), tool_calls=calls, **self.thought())
                for made in calls:
                    yield result(self.text(), made["id"], made["function"]["name"])
        elif self.random() < 0.02:
            yield result(self.text(), "call0", "search")
        yield assistant(self.text(), **self.thought())

    def case(self, variables):
        messages = [system(self.text())] if self.random() < 0.5 else []
        for _ in range(self.randrange(1, 4)):
            messages += self.turn()
        prompt = self.random() < 0.5
        # Usually realistic: a generation prompt does not follow an assistant message. Sometimes it ends anywhere.
        if prompt and self.random() < 0.9:
            messages.pop()
        if len(messages) > 1 and self.random() < 0.25:
            messages = messages[: self.randrange(1, len(messages))]
        tools = self.sample(SPECS, self.randrange(1, 4)) if self.random() < 0.35 * self.special else None
        return {"messages": messages or [user("?")], "tools": tools, "prompt": prompt, "variables": variables}


class Sides:
    """The inputs of both sides, and the edits of the template's output."""

    def __init__(self, case):
        self.ours = copy.deepcopy(case["messages"])
        self.theirs = copy.deepcopy(case["messages"])
        for message in self.theirs:
            for made in message.get("tool_calls", []):
                made["function"]["arguments"] = json.loads(made["function"]["arguments"])
        self.tools = copy.deepcopy(case["tools"])
        self.prompt = case["prompt"]
        self.variables = case["variables"]
        self.filters = {}
        self.edits = []

    def render(self, source):
        """Restores the original filters afterwards."""
        filters = chat._compile_jinja_template(source).environment.filters
        kept = dict(filters)
        filters.update(self.filters)
        try:
            rendered = outcome(source, self.theirs, self.tools, {"add_generation_prompt": self.prompt, **self.variables}, SPECIAL)
        finally:
            filters.update(kept)
        if "text" in rendered:
            for edit in self.edits:
                rendered["text"] = edit(rendered["text"])
        return rendered

    def replace(self, old, new, count=-1):
        self.edits.append(lambda text: text.replace(old, new, count))


def answers(messages):
    return [(index, message) for index, message in enumerate(messages) if message["role"] == "assistant"]


def is_last(messages, index):
    return index == len(messages) - 1


# Llama 3. `trim` behaves like Python's `str.strip`.


def whitespace(sides):
    sides.filters["trim"] = lambda text: text


PREAMBLE = "Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"


def preamble(date):
    def rewrite(sides):
        written = PREAMBLE.format(date=date)
        header = "<|start_header_id|>system<|end_header_id|>\n\n"
        if sides.theirs[0]["role"] == "system":
            sides.replace(header + written, header, 1)
        else:
            sides.replace(header + written + "<|eot_id|>", "", 1)

    return rewrite


def ipython(sides):
    for message in sides.ours:
        if message["role"] == "tool":
            message.update(role="ipython", content=json.dumps(message["content"], ensure_ascii=False))


def no_tools(case):
    messages = case["messages"]
    return "Unsupported" if case["tools"] or any({"tool_calls", "reasoning_content"} & message.keys() for message in messages) else None


# Qwen3.


def ends_with_stop(sides):
    """The template writes a newline after each message; our renderer writes it before the next message, so not at the end."""
    if not sides.prompt:
        sides.edits.append(lambda text: text.removesuffix("\n"))


def escapes(sides):
    sides.filters["tojson"] = json.dumps


def empty_system(sides):
    if sides.tools and sides.theirs[0] == system(""):
        sides.replace("<|im_start|>system\n\n\n", "<|im_start|>system\n", 1)


def results_alone(sides):
    for message in sides.theirs:
        if message["role"] == "tool":
            message.update(role="user", content=f"<tool_response>\n{message['content']}\n</tool_response>")


def has_question(messages):
    return any(message["role"] == "user" for message in messages)


def earlier_thoughts(sides):
    for index, message in answers(sides.theirs):
        if not is_last(sides.theirs, index):
            message.pop("reasoning_content", None)


def inline_thoughts(sides):
    """Thinking inside a text is plain text, except in the last answer."""
    for index, message in answers(sides.theirs):
        content = message["content"]
        if "reasoning_content" not in message and "</think>" in content:
            if is_last(sides.theirs, index) and has_question(sides.ours):
                before, _, rest = content.partition("</think>")
                message.update(reasoning_content=before.rpartition("<think>")[2], content=rest)
            else:
                message["reasoning_content"] = ""


FRAME = "<think>\n{}\n</think>\n\n"


def begins_thought(content):
    return "<think>" in content and "</think>" not in content


def begun_thought(sides):
    """A last answer with unclosed thinking gets no empty thinking block in front of it."""
    last = sides.ours[-1]
    content = last["content"]
    if last["role"] == "assistant" and "reasoning_content" not in last and begins_thought(content) and has_question(sides.ours):
        header = "<|im_start|>assistant\n"
        written = header + FRAME.format("") + content.lstrip("\n")

        def edit(text):
            before, found, after = text.rpartition(written)
            return before + header + content + after if found else text

        sides.edits.append(edit)


def thought_without_beginning(sides):
    """A last answer that only closes thinking gets an empty thinking block in front of it."""
    last = sides.theirs[-1]
    if last["role"] == "assistant" and "reasoning_content" not in sides.ours[-1] and "</think>" in sides.ours[-1]["content"] and "<think>" not in sides.ours[-1]["content"] and has_question(sides.ours):
        thought, rest = last["reasoning_content"], last["content"]
        last.update(reasoning_content="", content=FRAME.format(thought.strip("\n")) + rest.lstrip("\n"))


def newline_before_calls(sides):
    last = sides.theirs[-1]
    if last["role"] == "assistant" and last.get("reasoning_content") is not None and last["content"] == "" and "tool_calls" in last and has_question(sides.ours):
        last["content"] = "\n"


def written_thought(sides):
    """Our renderer writes the thinking of a last answer, which the template omits."""
    last = sides.theirs[-1]
    if last["role"] == "assistant" and last.get("reasoning_content"):
        last["content"] = f"<think>{last['reasoning_content']}</think>{last['content']}"


def unasked_thought(sides):
    if not has_question(sides.ours):
        written_thought(sides)


def contradiction(case):
    """Checks for an answer with thinking after a prompt without it."""
    last = case["messages"][-1]
    if last["role"] != "assistant":
        return None
    content, reasoning = last["content"], last.get("reasoning_content")
    if not has_question(case["messages"]):
        return None if case["prompt"] and content == "" and reasoning is None else "Contradiction"
    if case["prompt"]:
        return None
    before = case["messages"][-2] if len(case["messages"]) > 1 else {"role": "none"}
    if before["role"] == "assistant" and ("reasoning_content" in before or not begins_thought(before["content"])):
        # The last message of the prompt has thinking, which is dropped once it is history.
        return "Contradiction"
    if reasoning is None and "<think>" in content:
        before, ended, _ = content.partition("</think>")
        reasoning = before.rpartition("<think>")[2] if ended else content
    return "Contradiction" if (reasoning or "").strip("\n") != "" else None


QWEN3 = {
    "JSON with escapes": escapes,
    "an empty system prompt before tools": empty_system,
    "one message per tool result": results_alone,
    "thinking between tool calls": earlier_thoughts,
    "thinking inside texts": inline_thoughts,
    "thinking without an opening tag": thought_without_beginning,
    "thinking without a closing tag": begun_thought,
    "a newline between thinking and tool call": newline_before_calls,
}


# gpt-oss. The template uses another name for thinking.


def thinking(sides):
    for message in sides.theirs:
        if "reasoning_content" in message:
            message["thinking"] = message.pop("reasoning_content")


def without_first(sides):
    sides.edits.append(lambda text: text.partition("<|end|>")[2])


def tools_message(sides):
    if sides.tools:
        line = "Calls to these tools must go to the commentary channel: 'functions'.<|end|>"
        sides.replace(f"\n{line}", f"<|end|><|start|>system<|message|>{line}", 1)


def tool_types(sides):
    """Follows the format's guide. A type that is a list of one element is written unchanged."""
    if sides.tools:
        types = {"opt": ["string | any"], "nest": ["{ b?: number, a: boolean }"], "limit": ["number | any"]}
        for tool in sides.tools:
            for name, property in tool["function"]["parameters"]["properties"].items():
                if name in types:
                    property["type"] = types[name]
                if "enum" in property:
                    property["default"] = json.dumps(property["default"])
        sides.replace(" = (_: {\n", " = (_:\n{\n")
        sides.edits.append(lambda text: re.sub(r"(, // default: [^\n]*),\n", r"\1\n", text))


def constrain(sides):
    for message in sides.theirs:
        for made in message.get("tool_calls", []):
            made["function"]["content_type"] = "<|constrain|>json"


def arguments_as_written(sides):
    for message in sides.ours:
        for made in message.get("tool_calls", []):
            made["function"]["arguments"] = json.dumps(json.loads(made["function"]["arguments"]), ensure_ascii=False)


def results_as_written(sides):
    for message in sides.ours:
        if message["role"] == "tool":
            message["content"] = json.dumps(message["content"], ensure_ascii=False)


def one_call(sides):
    called = None
    for message in sides.ours:
        if "tool_calls" in message:
            del message["tool_calls"][1:]
            called = message["tool_calls"][0]["function"]["name"]
        elif message["role"] == "tool" and called is not None:
            message["name"] = called


def said_before_calls(sides):
    for message in sides.ours:
        if "tool_calls" in message and message["content"] != "" and "reasoning_content" not in message:
            message.update(reasoning_content=message["content"], content="")


def history_thoughts(sides):
    """The template drops thinking from all answers but the last, and from calls before a later answer."""
    for index, message in answers(sides.ours):
        called = "tool_calls" in message
        dropped = any("tool_calls" not in later for _, later in answers(sides.ours[index + 1 :])) if called else not is_last(sides.ours, index) or sides.prompt
        if dropped:
            message.pop("reasoning_content", None)


def other_system(sides):
    first, *rest = sides.ours
    sides.ours = [*([] if first == system("") else [first]), *(message for message in rest if message["role"] != "system")]


def answered(sides):
    """An answer followed only by a prompt, or by a system message that the template drops, ends like the last message."""
    if sides.ours and sides.ours[-1]["role"] == "assistant" and "tool_calls" not in sides.ours[-1]:
        begun = "<|start|>assistant" if sides.prompt else ""
        ending = f"<|end|>{begun}"
        sides.edits.append(lambda text: f"{text.removesuffix(ending)}<|return|>{begun}" if text.endswith(ending) else text)


GPT_OSS = {
    "the message about the tool channel": tools_message,
    "tool parameter types": tool_types,
    "<|constrain|>": constrain,
    "verbatim tool arguments": arguments_as_written,
    "verbatim tool results": results_as_written,
    "one tool call per message": one_call,
    "text before a tool call": said_before_calls,
    "thinking in the history": history_thoughts,
    "an empty or later system message": other_system,
    "an answer before a prompt": answered,
}
RAISES = ("Message has tool role", "Cannot put tools", "Cannot pass both content and thinking")


def llama3(date):
    return {"the preamble with dates": preamble(date), "whitespace around a text": whitespace, "tool results": ipython}


def no_weights(source, sides, whole):
    """Checks for cases in which `Generic` cannot locate the answer: not after its prompt, or without a stop at its end."""
    last = sides.theirs[-1]
    if sides.prompt or last["role"] != "assistant" or "text" not in whole:
        return None
    before = outcome(source, sides.theirs[:-1], sides.tools, {"add_generation_prompt": True}, SPECIAL)
    if "text" not in before:
        return "Raised" if "raised" in before else "Failed"
    if not whole["text"].startswith(before["text"]):
        return "NoPrefix"
    return "Unsupported" if whole["text"].endswith("<|call|>") else None


TEMPLATES = {
    "Llama 3": "trl trl/chat_templates/llama3.jinja",
    "Llama 3.1": "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "Llama 3.2": "meta-llama-Llama-3.2-3B-Instruct.jinja",
    "Llama 3.3": "meta-llama-Llama-3.3-70B-Instruct.jinja",
    "Qwen3, first release": "Qwen-Qwen3-0.6B.jinja",
    "Qwen3": "trl trl/chat_templates/qwen3.jinja",
    "Qwen3 Instruct 2507": "trl trl/chat_templates/qwen3_instruct_2507.jinja",
    "Qwen3 Thinking 2507": "xinference xinference/model/llm/models/Qwen3-Thinking.json",
    "gpt-oss, first release": "xinference xinference/model/llm/models/gpt-oss.json",
    "gpt-oss": "openai-gpt-oss-120b.jinja",
}


def run(renderer, template, differences, refusal=lambda case: None, before=(), **variables):
    return {"renderer": renderer, "template": template, "differences": differences, "refusal": refusal, "before": before, "variables": variables}


RUNS = [
    run("llama3", "Llama 3", {"whitespace around a text": whitespace}, no_tools),
    run("llama3", "Llama 3.1", llama3("26 Jul 2024"), no_tools),
    run("llama3", "Llama 3.2", llama3("05 Mar 2026"), no_tools),
    run("llama3", "Llama 3.3", llama3("26 Jul 2024"), no_tools),
    run("qwen3", "Qwen3, first release", {**QWEN3, "thinking without a user message": unasked_thought}, before=[ends_with_stop]),
    run("qwen3", "Qwen3", {**QWEN3, "thinking without a user message": unasked_thought}, before=[ends_with_stop]),
    run("qwen3_disable_thinking", "Qwen3", QWEN3, contradiction, [ends_with_stop], enable_thinking=False),
    run("qwen3_instruct", "Qwen3 Instruct 2507", {**{name: QWEN3[name] for name in list(QWEN3)[:3]}, "thinking of models without thinking": written_thought}, before=[ends_with_stop]),
    run("gpt_oss_no_sysprompt", "gpt-oss", {**GPT_OSS, "no system message": without_first}, before=[thinking]),
    *(run(f"gpt_oss_{effort}_reasoning", "gpt-oss", GPT_OSS, before=[thinking], reasoning_effort=effort) for effort in ("low", "medium", "high")),
    *(run("generic", template, {}) for template in TEMPLATES),
]


def source_of(templates, place):
    found = [one["source"] for one in templates.values() if any(known.endswith(place) for known in one["places"])]
    if len(found) != 1:
        sys.exit(f"expected one template at {place}, found {len(found)}: the packages have changed")
    return found[0]


def judged(asked, source, case):
    """Returns the case, the output of the template, and its output without the known differences."""
    sides = Sides(case)
    for prepare in asked["before"]:
        prepare(sides)
    plain = current = sides.render(source)
    refused = no_weights(source, sides, plain) if asked["renderer"] == "generic" else asked["refusal"](case)
    if refused is not None:
        return {**case, "refused": refused, **plain}
    if "raised" in plain and plain["raised"].startswith(RAISES):
        return {**case, **plain}
    reasons = []
    for name, rewrite in asked["differences"].items():
        ours = copy.deepcopy(sides.ours)
        rewrite(sides)
        rendered = sides.render(source)
        if rendered != current or ours != sides.ours:
            reasons.append(name)
        current = rendered
    return {**case, **plain, "reasons": reasons, "adjusted": {"messages": sides.ours, **current}}


def main(templates, directory, seed, cases):
    known = json.loads(templates.read_text(encoding="utf-8"))
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.jsonl"):
        old.unlink()
    for number, asked in enumerate(RUNS):
        source = source_of(known, TEMPLATES[asked["template"]])
        chance = Talk(f"{seed} {asked['renderer']} {asked['template']}")
        if asked["renderer"] == "llama3":
            chance.special = 0.1
        head = {"renderer": asked["renderer"], "template": asked["template"], "differences": list(asked["differences"]), "date": DATE}
        if asked["renderer"] == "generic":
            head["source"] = source
        with open(directory / f"{number:02}.jsonl", "w", encoding="utf-8") as file:
            file.write(json.dumps(head) + "\n")
            for _ in range(cases):
                file.write(json.dumps(judged(asked, source, chance.case(asked["variables"]))) + "\n")
        print(f"{asked['renderer']}, {asked['template']}: {cases} cases rendered", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
