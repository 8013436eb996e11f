"""Renders templates with transformers over fixed and random conversations and records the output.

    python gold.py <templates.json> <directory to write> <seed>

The clock is frozen. Writes one file per template, with one case per line.
"""

import datetime
import json
import random
import signal
import sys
from pathlib import Path

import jinja2
import transformers.utils.chat_template_utils as chat

RANDOM = 40


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9)


chat.datetime = Frozen


def tool(name, description, parameters, **more):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters, **more}}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def result(content, id, name=None):
    return {"role": "tool", "content": content, "tool_call_id": id, **({} if name is None else {"name": name})}


TOOLS = [
    tool(
        "get_weather",
        'The weather <in> a city & "region" — é',
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City's name"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": "integer", "default": 3, "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
                "opt": {"type": ["string", "null"]},
                "flag": {"type": "boolean", "default": True},
                "nest": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "boolean"}}, "required": ["a"]},
                "share": {"type": "number", "default": 1.0, "maximum": 1e20},
            },
            "required": ["city"],
        },
    ),
    tool("noop", "Does nothing.", {"type": "object", "properties": {}, "required": []}),
    tool(
        "search",
        "Search 日本語\nsecond line",
        {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "max"}},
            "required": ["query"],
            "additionalProperties": False,
        },
        strict=True,
    ),
]
NESTED = {"city": 'Zürich "x" <b>', "nest": {"b": 1.5, "a": True, "l": [1, [2, {"z": None}], "日本"]}, "empty": {}, "none": None, "list": [], "2": 1, "1": 2}
NUMBERS = {"f1": 1.0, "big": 2**60, "e": 1e20, "small": 1e-7, "neg0": -0.0, "third": 1 / 3}
PARTS = [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "here"}]
FIXED = [
    [user("Hello there")],
    [system("Be brief."), user("Hi"), assistant("Hello!"), user("More?")],
    [system("  Be brief.\n"), user(" first \n"), assistant("  one\n"), user("\nsecond"), assistant("two "), user("third?")],
    [system("Réponds en 日本語 👩‍👩‍👧‍👦"), user("שלום e\u0301 \u2028 <|x|> {{ y }} {% z %} \"q\" 'p' \\n \t & < >"), assistant("𝒳 – ok…"), user("👋")],
    [user("2+2?"), assistant("4")],
    [user("2+2?"), assistant("<think>\nadd  them\n</think>\n\n4"), user("and 3+3?"), assistant("<think>\n  spaced \n\n</think>\n\n 6 ")],
    [system("s"), user("q1"), assistant("a1", reasoning_content="because\n  indented\n"), user("q2"), assistant("a2", reasoning_content=" two ")],
    [system("Use tools."), user("weather?"), assistant("let me see", tool_calls=[call("abcdefgh1", "get_weather", {"city": "Paris", "days": 2})]), result('{"temp": 20}', "abcdefgh1", "get_weather"), assistant("It's 20°C"), user("thanks")],
    [user("weather?"), assistant("", tool_calls=[call("abcdefgh1", "get_weather", NESTED)]), result('{"temp": 20, "k": "é"}', "abcdefgh1", "get_weather")],
    [user("both?"), assistant("", tool_calls=[call("abcdefgh1", "get_weather", {"city": "A"}), call("abcdefgh2", "search", {"query": "q", "limit": None})]), result("20", "abcdefgh1", "get_weather"), result("found", "abcdefgh2", "search"), assistant("done")],
    [user("weather?"), assistant(None, tool_calls=[call("abcdefgh1", "get_weather", '{"city": "Z"}')]), result("20", "abcdefgh1")],
    [system("s"), user("w?"), assistant("", reasoning_content="need tool\n", tool_calls=[call("abcdefgh1", "get_weather", {"city": "B", "flag": False})]), result("ok", "abcdefgh1", "get_weather"), assistant("fin", reasoning_content="have it")],
    [system([{"type": "text", "text": "sys part"}]), user(PARTS), assistant([{"type": "text", "text": "ok"}]), user([{"type": "text", "text": "bye"}])],
    [{"role": "developer", "content": "dev"}, user("x")],
    [user("a"), user("b"), assistant("c"), assistant("d")],
    [user("n?"), assistant("", tool_calls=[call("abcdefgh1", "get_weather", NUMBERS)]), result("1", "abcdefgh1", "get_weather")],
]
WORDS = ["hello", "ok", " ", "\n", "\n\n", "\t", "é", "日本", "👍🏽", "<think>", "</think>", "<tool_call>", "</tool_response>", "<tool_response>", "'", '"', "\\", "{", "}", "{{", "%}", "&", "<b>", "\u2028", "\u00a0", "\r\n", "0", "None", "x" * 40, "/think", "/no_think", "\u200b", "\x07", "\x7f", "ß", "ΑΣ"]
KEYS = ["b", "a", "c z", "é", "type", "items", "keys", "name", "10", "9"]


class Chance(random.Random):
    def text(self):
        return "".join(self.choice(WORDS) for _ in range(self.randrange(0, 7)))

    def json(self, depth=0):
        kind = self.randrange(9 if depth < 3 else 7)
        if kind < 7:
            return [None, True, False, self.randrange(-5, 10**6), self.choice([0.5, -2.25, 3.14159, 2.0, 1e22, 10**17]), self.text(), self.text()][kind]
        if kind == 7:
            return [self.json(depth + 1) for _ in range(self.randrange(3))]
        return {self.choice(KEYS): self.json(depth + 1) for _ in range(self.randrange(4))}

    def arguments(self):
        return self.json(2) if self.random() < 0.1 else {self.choice("abcxyz"): self.json() for _ in range(self.randrange(4))}

    def conversation(self):
        messages = [system(self.text())] if self.random() < 0.5 else []
        for _ in range(self.randrange(1, 4)):
            messages.append(user(self.text() if self.random() < 0.85 else [{"type": "text", "text": self.text()}, {"type": "text", "text": self.text()}]))
            if self.random() < 0.5:
                calls = [call(f"abcdefgh{i}", self.choice(["get_weather", "search", "noop"]), self.arguments()) for i in range(self.choice([1, 1, 1, 2, 3]))]
                turn = assistant(self.choice([None, "", self.text()]), tool_calls=calls)
                if self.random() < 0.4:
                    turn["reasoning_content"] = self.text()
                messages.append(turn)
                for made in calls:
                    messages.append(result(self.text() if self.random() < 0.9 else self.json(2), made["id"], made["function"]["name"] if self.random() < 0.7 else None))
            if self.random() < 0.7:
                turn = assistant(self.text())
                if self.random() < 0.4:
                    turn[self.choice(["reasoning_content", "thinking", "reasoning"])] = self.text()
                messages.append(turn)
        return messages


OPTIONS = [
    {"add_generation_prompt": False},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": False, "continue_final_message": True},
]
SPECIAL = {"bos_token": "<BOS>", "eos_token": "<EOS>"}


class TooLong(Exception):
    pass


def alarm(*_):
    raise TooLong()


def outcome(source, messages, tools, options, special=SPECIAL):
    signal.alarm(10)
    try:
        rendered, _ = chat.render_jinja_template([messages], tools=tools, chat_template=source, **options, **special)
        return {"text": rendered[0]}
    except TooLong:
        raise
    except Exception as problem:
        name = type(problem).__name__
        # `raise_exception` raises exactly this class, not a subclass.
        return {"raised": str(problem)} if type(problem) is jinja2.TemplateError else {"error": name, "message": str(problem)[:200]}
    finally:
        signal.alarm(0)


def main(templates, directory, seed):
    signal.signal(signal.SIGALRM, alarm)
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.jsonl"):
        old.unlink()
    count = 0
    for digest, template in json.loads(templates.read_text(encoding="utf-8")).items():
        chance = Chance(f"{seed} {digest}")
        conversations = FIXED + [chance.conversation() for _ in range(RANDOM)]
        with open(directory / f"{digest}.jsonl", "w", encoding="utf-8") as file:
            head = {**template, "special": SPECIAL, "tools": TOOLS, "now": "2026-03-05T14:07:09Z"}
            file.write(json.dumps(head) + "\n")
            for index, messages in enumerate(conversations):
                for tools in (None, TOOLS) if index < len(FIXED) else (chance.choice([None, TOOLS]),):
                    for options in OPTIONS if index < len(FIXED) else (chance.choice(OPTIONS),):
                        case = {"messages": messages, "tools": tools is not None, "options": options}
                        file.write(json.dumps({**case, **outcome(template["source"], messages, tools, options)}) + "\n")
                        count += 1
    print(count, "cases rendered by transformers", chat.__dict__.get("__version__", ""), "jinja2", jinja2.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
