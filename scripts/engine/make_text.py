"""Generates the training text of the base model. All of it comes from the lists and rules in this file.

A document is a chat or a plain text. `python make_text.py --count 20` prints some; `train_base.py` uses the same
generator. Questions for which `held_out` returns true never occur in a document: they are the test set.
"""

import argparse
import json
import random
import zlib

OBJECTS = """apple bag ball basket bell bird boat book bottle box bread bridge brush bucket button cake candle cap card
cart cat chair cheese clock cloud coat coin cow cup desk dog door drum duck egg farm fence fire fish flag flower fox frog
garden gate glass goat grape hammer hat hen hill horse house jar key kite knife ladder lake lamp leaf lemon letter lion
map milk mirror moon mouse mug nail nest net nut onion oven owl paper path pear pen pencil pie pig plate plum pond pot
rabbit rain ring river road rock roof rope rose sail salt sand seed sheep shell ship shirt shoe shop snow soap sock soup
spoon star stone stool street sun table tea tent tower town train tray tree truck tub village wagon wall water wheel wind
window wolf wood wool""".split()
COLOURS = "red blue green yellow white black brown grey pink purple orange silver".split()
SIZES = "small big little tall old new long round heavy light soft bright".split()
NAMES = "Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jana Kim Leo Mira Nils Ora Pia Quin Rosa Sam Tara Uma Vik Wim Yara Zeno".split()
VERBS = {"found": "find", "saw": "see", "took": "take", "carried": "carry", "lost": "lose", "painted": "paint",
         "cleaned": "clean", "sold": "sell", "bought": "buy", "hid": "hide", "moved": "move", "made": "make"}
PLACES = "the market|the river|the hill|the old mill|the harbour|the forest|the school|the garden|the bakery|the lake".split("|")
FEELINGS = "happy sad tired proud calm angry hungry brave shy cold".split()
TIMES = ["In the morning", "At noon", "In the evening", "One day", "Last week", "After lunch", "Before dinner", "At night"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

# A fictional world: who lives where, with which animal, doing what. Fixed, so that it can be learned.
_world = random.Random(7)
TOWNS = "Arlen Brask Corvo Dunmere Eldin Falk".split()
JOBS = "baker smith fisher teacher weaver farmer sailor painter".split()
ANIMALS = "cat dog goat owl horse duck fox hen".split()
WORLD = {name: {"town": _world.choice(TOWNS), "job": _world.choice(JOBS), "animal": _world.choice(ANIMALS),
                "colour": _world.choice(COLOURS)} for name in NAMES}
TOWN_FACTS = {town: {"place": place, "ruler": ruler} for town, place, ruler in
              zip(TOWNS, _world.sample(PLACES, len(TOWNS)), _world.sample(NAMES, len(TOWNS)))}

SYSTEMS = ["You are a helpful assistant.", "You are a small model that answers briefly.", "Answer the question.",
           "Be short and exact.", "You help people in the valley."]


def held_out(question: str) -> bool:
    """Returns whether a question belongs to the test set, about one in twelve."""
    return zlib.crc32(question.encode()) % 12 == 0


def a(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def words(rng, low=1, high=7):
    count = rng.randint(low, high)
    if rng.random() < 0.35:
        return ["".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 6))) for _ in range(count)]
    pool = rng.choice([OBJECTS, OBJECTS, COLOURS, NAMES, OBJECTS + COLOURS + NAMES + SIZES])
    return [rng.choice(pool) for _ in range(count)]


def copy_question(rng):
    text = " ".join(words(rng))
    if rng.random() < 0.15:
        text = " ".join(str(rng.randint(0, 99)) for _ in range(rng.randint(1, 6)))
    elif rng.random() < 0.12:
        text = sentence(rng)
    form = rng.choice(["Repeat: {}", "Repeat after me: {}", "Copy: {}", "Say: {}", "Copy these words: {}", "Echo: {}"])
    return form.format(text), text


def count_question(rng):
    start = rng.randint(0, 30)
    end = start + rng.randint(1, 9)
    form = rng.choice(["Count from {} to {}.", "Count from {} to {}", "Please count from {} to {}.", "Count: {} to {}"])
    return form.format(start, end), " ".join(str(n) for n in range(start, end + 1))


def add_question(rng):
    x, y = (rng.randint(0, 9), rng.randint(0, 9)) if rng.random() < 0.4 else (rng.randint(0, 20), rng.randint(0, 20))
    form = rng.choice(["What is {} + {}?", "What is {} + {}?", "{} + {}", "{} + {} = ?", "Add {} and {}.", "How much is {} plus {}?"])
    return form.format(x, y), str(x + y)


def pick_question(rng):
    chosen = [rng.choice(OBJECTS) for _ in range(rng.randint(2, 5))]
    which, index = rng.choice([("first", 0), ("last", -1)])
    return f"What is the {which} word: {' '.join(chosen)}", chosen[index]


def length_question(rng):
    chosen = [rng.choice(OBJECTS) for _ in range(rng.randint(1, 6))]
    return f"How many words: {' '.join(chosen)}", str(len(chosen))


def world_question(rng):
    name = rng.choice(NAMES)
    facts = WORLD[name]
    town = rng.choice(TOWNS)
    return rng.choice([
        (f"Where does {name} live?", f"{name} lives in {facts['town']}."),
        (f"What does {name} do?", f"{name} is {a(facts['job'])}."),
        (f"What animal does {name} have?", f"{name} has {a(facts['animal'])}."),
        (f"What is the favourite colour of {name}?", f"The favourite colour of {name} is {facts['colour']}."),
        (f"Who rules {town}?", f"{TOWN_FACTS[town]['ruler']} rules {town}."),
        (f"What is {town} known for?", f"{town} is known for {TOWN_FACTS[town]['place']}."),
    ])


def talk_question(rng):
    name = rng.choice(NAMES)
    return rng.choice([
        (rng.choice(["Hello", "Hello!", "Hi", "Hi!", "Good morning.", "Hey"]), "Hello! How can I help you?"),
        (rng.choice(["Who are you?", "What are you?"]), "I am a small model that lives in your computer."),
        (rng.choice(["Thank you.", "Thanks!", "Thanks"]), "You are welcome."),
        (rng.choice(["Goodbye.", "Bye", "Bye!"]), "Goodbye!"),
        (rng.choice(["How are you?", "How are you today?"]), "I am well, thank you."),
        ("What can you do?", "I can copy words, count, add small numbers and tell short stories."),
        (f"My name is {name}.", f"Nice to meet you, {name}."),
    ])


def story_question(rng):
    name, noun = rng.choice(NAMES), rng.choice(OBJECTS)
    return f"Tell a story about {name} and {a(noun)}.", story(rng, name, noun)


def number_word_question(rng):
    n = rng.randrange(len(NUMBER_WORDS))
    return rng.choice([(f"Write {n} as a word.", NUMBER_WORDS[n]), (f"Write {NUMBER_WORDS[n]} as a number.", str(n))])


def next_question(rng):
    n = rng.randint(0, 98)
    return rng.choice([(f"What comes after {n}?", str(n + 1)), (f"What comes before {n + 1}?", str(n))])


QUESTIONS = [(copy_question, 26), (count_question, 15), (add_question, 26), (pick_question, 5), (length_question, 4),
             (world_question, 10), (talk_question, 7), (story_question, 4), (number_word_question, 2), (next_question, 5)]


def question(rng, unseen=False, maker=None):
    while True:
        make = maker or rng.choices([q for q, _ in QUESTIONS], [w for _, w in QUESTIONS])[0]
        asked, answer = make(rng)
        key = asked
        if make is add_question:  # held out in every wording
            digits = "".join(c if c.isdigit() else " " for c in asked).split()
            key = f"{digits[0]} plus {digits[1]}"
        tested = make in (copy_question, count_question, add_question)
        if (tested and held_out(key)) == unseen:
            return asked, answer


def chat(rng):
    messages = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    for _ in range(rng.choices([1, 2, 3, 4], [5, 3, 2, 1])[0]):
        asked, answer = question(rng)
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return messages


def noun_phrase(rng):
    noun = rng.choice(OBJECTS)
    adjective = rng.choice(SIZES + COLOURS) if rng.random() < 0.6 else None
    return f"the {adjective} {noun}" if adjective else f"the {noun}"


def sentence(rng, name=None):
    return f"{name or rng.choice(NAMES)} {rng.choice(list(VERBS))} {noun_phrase(rng)} near {rng.choice(PLACES)}."


def story(rng, name=None, noun=None):
    name, noun, friend = name or rng.choice(NAMES), noun or rng.choice(OBJECTS), rng.choice(NAMES)
    past = rng.choice(list(VERBS))
    feeling, place = rng.choice(FEELINGS), rng.choice(PLACES)
    parts = [f"{rng.choice(TIMES)}, {name} {past} {a(rng.choice(SIZES + COLOURS))} {noun} near {place}.",
             f"{friend} wanted to {rng.choice(list(VERBS.values()))} the {noun}, too.",
             f'"Is this your {noun}?" asked {friend}.', f"So they went to {rng.choice(PLACES)} together.",
             f"{name} was {feeling}, and {friend} was {rng.choice(FEELINGS)}."]
    kept = [parts[0]] + [p for p in parts[1:-1] if rng.random() < 0.6] + [parts[-1]]
    return " ".join(kept)


def plain(rng):
    kind = rng.random()
    if kind < 0.45:
        return story(rng)
    if kind < 0.65:
        return " ".join(sentence(rng) for _ in range(rng.randint(2, 5)))
    if kind < 0.85:
        return " ".join(world_question(rng)[1] for _ in range(rng.randint(2, 6)))
    lines = []
    for _ in range(rng.randint(2, 6)):
        asked, answer = question(rng, maker=add_question)
        numbers = "".join(c if c.isdigit() else " " for c in asked).split()
        lines.append(f"{numbers[0]} + {numbers[1]} = {answer}")
    return "\n".join(lines)


def documents(seed):
    """Yields documents endlessly: lists of messages, or texts."""
    rng = random.Random(seed)
    while True:
        yield chat(rng) if rng.random() < 0.85 else plain(rng)


def test_questions(seed, kind, count, unseen):
    maker = {"copy": copy_question, "count": count_question, "add": add_question, "world": world_question,
             "talk": talk_question, "pick": pick_question}[kind]
    rng = random.Random(seed)
    return [question(rng, unseen=unseen, maker=maker) for _ in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    stream = documents(options.seed)
    for _ in range(options.count):
        print(json.dumps(next(stream)))
