"""The compact seed files: headers, knobs, honest questions and hints, the split by family.

The files are hand-written and trusted, so they run in this process.
"""

import ast
import collections
import io
import json
import pathlib
import random
import re
import runpy
import tokenize

import pytest

from spade_jax import records

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "experiments/seed_environments/compact").glob("*.py"))
QAEnv = runpy.run_path(str(ROOT / "spade_jax/domains/guest/qa_env.py"))["QAEnv"]
FIELDS = ["family", "skill", "setting", "kind", "split", "knobs"]
LEVELS = len(records.DIFFICULTIES)
MEDIUM = records.DIFFICULTIES.index("medium")

Task = collections.namedtuple("Task", "question answer hint")


def header(path):
    """Read the fields of a seed file's docstring in their order; the first line is a sentence."""
    lines = ast.get_docstring(ast.parse(path.read_text())).splitlines()
    assert lines[0].endswith(".") and lines[1] == ""
    return dict(line.split(": ", 1) for line in lines[2:])


def knobs(path):
    """Parse "4 -> 3 4 5; 9 -> 5 9 20" into {4: (3, 4, 5), 9: (5, 9, 20)}."""
    pairs = (knob.split(" -> ") for knob in header(path)["knobs"].split("; "))
    return {int(literal): tuple(map(int, values.split())) for literal, values in pairs}


def class_code(path):
    """Cut the class out of a seed file, without the docstring of the file."""
    source = path.read_text()
    return source[source.index("\nclass ") + 1 :].strip()


def at_level(path, level):
    """Replace each knob's literal in the class code by its value at a level, all at once."""
    values = {str(literal): str(choices[level]) for literal, choices in knobs(path).items()}
    lines = class_code(path).splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO("".join(lines)).readline))
    for token in reversed(tokens):
        if token.type == tokenize.NUMBER and token.string in values:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + values[token.string] + line[token.end[1] :]
    return "".join(lines)


def at_level_by_word(path, level):
    """Do the same without a tokenizer: a knob's literal must not stand as a word in a string."""
    values = {str(literal): str(choices[level]) for literal, choices in knobs(path).items()}
    return re.sub(r"\b\d+\b", lambda match: values.get(match[0], match[0]), class_code(path))


def load(path, level, folder):
    """Load the environment class of a seed file at a level."""
    turned = folder / path.name
    turned.write_text(at_level(path, level))
    found = runpy.run_path(str(turned), init_globals={"QAEnv": QAEnv, "random": random})
    (name,) = [name for name in found if name.endswith("Env") and name != "QAEnv"]
    return found[name]


def draw(environment_class, seeds):
    """Draw the tasks of some seeds."""
    tasks = []
    for seed in seeds:
        environment = environment_class()
        question, _ = environment.reset(seed=seed)
        tasks.append(Task(question, environment.solution(), environment.hint()))
    return tasks


def holds(text, answer):
    """Tell whether the words of an answer stand side by side in a text."""
    return f" {' '.join(re.findall('[a-z0-9]+', answer))} " in (
        f" {' '.join(re.findall('[a-z0-9]+', text))} "
    )


def naive_wins(tasks):
    """Measure how often players that do not think win: each player's share of the tasks."""
    wins = collections.Counter()
    counts = collections.Counter(task.answer for task in tasks)
    wins["constant"] = counts.most_common(1)[0][1]
    for task in tasks:
        words = task.question.split()
        wins["echo"] += task.answer == task.question
        wins["data echo"] += task.answer == " ".join(words[1:])
        wins["first word"] += task.answer == words[0]
        wins["last word"] += task.answer == words[-1]
        wins["random word"] += words.count(task.answer) / len(words)
        wins["integer to 9"] += task.answer in map(str, range(10)) and 1 / 10
        wins["integer to 20"] += task.answer in map(str, range(21)) and 1 / 21
        wins["integer to 99"] += task.answer in map(str, range(100)) and 1 / 100
    return {name: count / len(tasks) for name, count in wins.items()}


def test_families_are_split_by_the_draw():
    """Seven families of each skill train and two are held out, drawn and not picked."""
    assert len(FILES) == 54
    families = collections.defaultdict(dict)
    for path in FILES:
        assert header(path)["family"] == path.stem
        families[header(path)["skill"]][path.stem] = header(path)["split"]
    assert set(families) == set(records.SKILLS)
    for splits in families.values():
        held_out = random.Random(0).sample(sorted(splits), 2)
        assert len(splits) == 9
        assert splits == {name: "held_out" if name in held_out else "train" for name in splits}


def test_classes_and_operation_words_are_distinct(tmp_path):
    found = [load(path, MEDIUM, tmp_path) for path in FILES]
    words = [draw(environment_class, [0])[0].question.split()[0] for environment_class in found]
    assert len(set(words)) == len(FILES)
    assert len({environment_class.__name__ for environment_class in found}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_header_and_code_have_their_form(path):
    fields = header(path)
    assert list(fields) == FIELDS
    assert (fields["setting"], fields["kind"]) == ("compact", "single_turn")
    code = class_code(path)
    assert 150 <= len(code) <= 380
    tree = ast.parse(code)
    (task,) = tree.body[0].body
    assert task.name == "task" and [base.id for base in tree.body[0].bases] == ["QAEnv"]
    literals = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    in_text = [
        node.value
        for text in ast.walk(tree)
        if isinstance(text, ast.JoinedStr)
        for node in ast.walk(text)
        if isinstance(node, ast.Constant)
    ]
    for literal, values in knobs(path).items():
        assert literal in literals and literal not in in_text
        assert len(values) == LEVELS and values[MEDIUM] == literal
    assert at_level(path, MEDIUM) == code
    for level in range(LEVELS):
        assert at_level(path, level) == at_level_by_word(path, level)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_solution_wins_at_every_level(path, tmp_path):
    for level in range(LEVELS):
        environment_class = load(path, level, tmp_path)
        tasks = draw(environment_class, range(50))
        assert tasks == draw(environment_class, range(50))
        for seed, task in enumerate(tasks):
            assert re.fullmatch(r"[a-z]+[a-z0-9 +*/<>=!-]+", task.question)
            assert len(task.question) <= 45 and len(task.answer) <= 12
            assert re.fullmatch(r"[a-z0-9]+( [a-z0-9]+)*", task.answer)
            assert task.hint and len(task.hint) <= 40
            assert json.loads(json.dumps(task.question)) == task.question
            environment = environment_class()
            environment.reset(seed)
            _, reward, terminated, truncated, _ = environment.step(f"\\boxed{{{task.answer}}}")
            assert (reward, terminated, truncated) == (1.0, True, False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tasks_are_varied_and_need_thought(path, tmp_path):
    tasks = draw(load(path, MEDIUM, tmp_path), range(1000))
    assert len({task.question for task in tasks}) >= 200
    answers = collections.defaultdict(set)
    for task in tasks:
        answers[task.question].add(task.answer)
    assert all(len(found) == 1 for found in answers.values())
    assert max(naive_wins(tasks).values()) < 0.2
    assert sum(holds(task.hint, task.answer) for task in tasks) < 0.1 * len(tasks)
