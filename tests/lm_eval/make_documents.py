"""Writes the documents of the lm-eval tasks in this folder: make_documents.py

The questions are of the kinds that models/sluice-tiny was taught (its README lists them). So right
and wrong answers differ by much, and greedy answers are seldom near a tie. The same seed makes the
same files, and the files are in the tree.

choices.jsonl: 210 questions with four answers each, scored by log-probability; answers.jsonl: 60
questions to answer; texts.jsonl: 20 texts, scored as a whole by log-probability.
"""

import json
import pathlib
import random

NAMES = "Alice Bruno Clara Daniel Edith Felix Greta Hugo Ines Jonas Klara Lukas Marta Nils Olga Paul Rita Sven Thea Uwe".split()
WORDS = """anchor basket candle dragon engine forest garden hammer island jacket kettle ladder market needle orange pencil
rocket silver timber violet window yellow""".split()
CITIES = {
    "Austria": "Vienna", "Belgium": "Brussels", "Canada": "Ottawa", "Denmark": "Copenhagen", "Egypt": "Cairo", "Finland": "Helsinki",
    "France": "Paris", "Germany": "Berlin", "Hungary": "Budapest", "Italy": "Rome", "Japan": "Tokyo", "Norway": "Oslo",
    "Poland": "Warsaw", "Portugal": "Lisbon", "Spain": "Madrid", "Sweden": "Stockholm",
}
JOBS = "baker doctor engineer farmer painter pilot sailor teacher".split()


def addition(r):
    a, b = r.randrange(10, 1000), r.randrange(10, 1000)
    return f"What is {a} + {b}?", [f"{a} + {b} = {a + b + d}." for d in (0, 1, -10, 100)]


def product(r):
    a, b = r.randrange(2, 13), r.randrange(2, 13)
    return f"What is {a} times {b}?", [f"{a} * {b} = {a * b + d}." for d in (0, 1, 2, 10)]


def capital(r):
    country, *others = r.sample(sorted(CITIES), 4)
    return f"What is the capital of {country}?", [f"The capital of {country} is {CITIES[c]}." for c in (country, *others)]


def backwards(r):
    word, *others = r.sample(WORDS, 4)
    return f"Reverse the word {word}.", [w[::-1] for w in (word, *others)]


def letters(r):
    word = r.choice(WORDS)
    return f"How many letters are in {word}?", [f"The word {word} has {len(word) + d} letters." for d in (0, 1, 2, -1)]


def order(r):
    numbers = r.sample(range(1, 100), r.randrange(3, 8))
    right = sorted(numbers)
    wrong = [right[::-1], right[1:] + right[:1], [right[1], right[0], *right[2:]]]
    return f"Sort these numbers: {', '.join(map(str, numbers))}.", [", ".join(map(str, n)) for n in (right, *wrong)]


def record(r):
    name, age, job, city = r.choice(NAMES), r.randrange(18, 90), r.choice(JOBS), r.choice(sorted(CITIES.values()))
    records = [{"name": name, "age": age + d, "job": job, "city": city} for d in range(4)]
    question = f"Extract name, age, job and city as JSON: {name} is {age} years old, works as a {job} and lives in {city}."
    return question, [json.dumps(one) for one in records]


def notes(r):
    """A question about one line of many, so that some prompts exceed the 256 keys that a query
    attends to."""
    people = r.sample([f"{a} {b.capitalize()}" for a in NAMES for b in WORDS], r.choice([5, 10, 20, 40, 60]))
    codes = [r.randrange(1000, 10000) for _ in people]
    at = r.randrange(len(people))
    lines = "\n".join(f"The code of {p} is {c}." for p, c in zip(people, codes))
    question = f"Read these notes.\n{lines}\nWhat is the code of {people[at]}?"
    return question, [f"The code of {people[at]} is {c}." for c in (codes[at], *r.sample(range(1000, 10000), 3))]


KINDS = [addition, product, capital, backwards, letters, order, record]


def document(r, make):
    question, answers = make(r)
    wanted = answers[0]
    r.shuffle(answers)
    return {"kind": make.__name__, "question": question, "answer": wanted, "choices": answers, "label": answers.index(wanted)}


def write(path, documents):
    path.write_text("".join(json.dumps(d) + "\n" for d in documents))


def main():
    folder = pathlib.Path(__file__).parent
    r = random.Random(20260)
    choices = [document(r, KINDS[i % len(KINDS)]) for i in range(189)] + [document(r, notes) for _ in range(21)]
    answers = [document(r, KINDS[i % len(KINDS)]) for i in range(54)] + [document(r, notes) for _ in range(6)]
    texts = [[document(r, r.choice(KINDS)) for _ in range(r.randrange(1, 9))] for _ in range(20)]
    write(folder / "choices.jsonl", choices)
    write(folder / "answers.jsonl", [{k: d[k] for k in ("kind", "question", "answer")} for d in answers])
    write(folder / "texts.jsonl", [{"text": "\n".join(f"{d['question']} {d['answer']}" for d in text)} for text in texts])


if __name__ == "__main__":
    main()
