"""Adds the output of the official cookbook's renderers to the cases that `renderers.py` rendered with the vendors'
templates.

    python cookbook.py <directory of the cases> <directory of the tokenizers>
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "goldens"))

import renderer_goldens as goldens
from tokenizers import Tokenizer


def thoughtful(message):
    """Converts the thinking to a content part, as the cookbook represents it."""
    message = dict(message)
    thought = message.pop("reasoning_content", None)
    if thought is not None:
        said = [goldens.text(message["content"])] if message["content"] != "" else []
        message["content"] = [goldens.thinking(thought), *said]
    return goldens.message_of(message)


def said(renderer, row):
    messages = [thoughtful(message) for message in row["messages"]]
    if row["tools"] is not None:
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        prefix = renderer.create_conversation_prefix_with_tools([tool["function"] for tool in row["tools"]], system)
        messages = [*prefix, *(messages[1:] if messages[0]["role"] == "system" else messages)]
    if row["prompt"]:
        return renderer.build_generation_prompt(messages).to_ints()
    mode = "last_assistant_message" if messages[-1]["role"] == "assistant" else "all_tokens"
    return renderer.build_supervised_example(messages, goldens.base.TrainOnWhat(mode))[0].to_ints()


def main(directory, tokenizers):
    for path in sorted(directory.glob("*.jsonl")):
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        head = json.loads(first)
        if head["renderer"] not in goldens.RENDERERS:
            continue
        goldens.DATE = head["date"]
        name, make = goldens.RENDERERS[head["renderer"]]
        _, _, _, bos, eos = goldens.TOKENIZERS[name]
        renderer = make(goldens.Reference(Tokenizer.from_file(str(tokenizers / f"{name}.tokenizer.json")), bos, eos))
        with open(path, "w", encoding="utf-8") as file:
            file.write(first + "\n")
            for line in lines:
                row = json.loads(line)
                try:
                    row["cookbook"] = said(renderer, row)
                except Exception as problem:
                    row["cookbook"] = type(problem).__name__
                file.write(json.dumps(row) + "\n")
    print("rendered all cases with the cookbook")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
