"""One data set of reasoning-gym as an environment; runs in the sandbox only, never imported here.

A seed is one question. The reward is the package's own score; 1 ends the episode, anything less
may be tried again while turns are left.
"""

import json

import reasoning_gym

NAME, CONFIG, LEVEL, TURNS = json.loads(__DATA__)  # noqa: F821  filled in by libraries.py
NUMBER = __NUMBER__  # noqa: F821  tells it from the library's others, alike but for data
ASK = "\n\nPut your final answer within \\boxed{}."


def options(seed):
    """The configuration: that of a level of the package's curriculum, or the one given."""
    if LEVEL is None:
        return {"size": 1, "seed": seed, **CONFIG}
    curriculum = reasoning_gym.create_curriculum(NAME)
    curriculum.set_global_level(LEVEL)
    made = curriculum.generate_configuration({"size": 1, "seed": seed, **CONFIG})
    return dict(vars(made))


class ReasoningGymEnv:
    """One question of a data set for each seed."""

    max_turns = TURNS

    def reset(self, seed=None):
        """Ask the question of a seed."""
        self.questions = reasoning_gym.create_dataset(NAME, **options(seed))
        self.entry = self.questions[0]
        self.turns = 0
        known = self.entry["answer"]  # without one the program has no solution()
        self.solution = None if known is None else lambda: "\\boxed{" + str(known) + "}"
        return self.entry["question"] + ASK, {}

    def step(self, action):
        """Score an answer; the last try keeps its score, whatever it is."""
        said = action.strip()
        if said.startswith("\\boxed{") and said.endswith("}"):
            said = said[7:-1]
        self.turns += 1
        score = self.score(said)
        if score < 1.0 and str(self.entry["answer"]).startswith("{"):
            whole = self.score("{" + said + "}")  # the braces around a box's content peel off
            score = whole if whole >= 1.0 else score
        if score >= 1.0 or self.turns >= self.max_turns:
            return "", score, True, False, {}
        return "That is not right. Try again." + ASK, 0.0, False, False, {}

    def score(self, answer):
        """The package's score; an answer on which its scorer fails is wrong."""
        try:
            return min(1.0, float(self.questions.score_answer(answer=answer, entry=self.entry)))
        except Exception:
            return 0.0
