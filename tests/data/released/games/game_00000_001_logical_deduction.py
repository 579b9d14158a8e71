"""Truth Tellers: no imports at all, every name is expected in the namespace."""


class KnightsAndKnavesEnv:
    def __init__(self, max_turns=6):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        names = ["Ada", "Ben", "Cleo", "Dov"]
        self.roles = OrderedDict((name, rng.choice(["knight", "knave"])) for name in names)
        self.statements: List[Tuple[str, str, str]] = []
        for speaker, target in zip(names, names[1:] + names[:1]):
            honest = self.roles[speaker] == "knight"
            claim = self.roles[target] if honest else self._other(self.roles[target])
            self.statements.append((speaker, target, claim))
        self.anchor = names[0]
        self.asked = deque(maxlen=8)
        self.history = defaultdict(int)
        self.turn = 0
        return self._observe("Work out who is what."), {}

    @staticmethod
    def _other(role: str) -> str:
        return "knave" if role == "knight" else "knight"

    def _observe(self, message: str) -> str:
        said = "; ".join(f"{a} says {b} is a {c}" for a, b, c in self.statements)
        return (
            f"{message}\n{said}.\nYou know that {self.anchor} is a {self.roles[self.anchor]}.\n"
            f"Turn {self.turn}/{self.max_turns}. Answer \\boxed{{k k n k}} style, one word for "
            f"each of {' '.join(self.roles)}: knight or knave."
        )

    def step(self, action):
        self.turn += 1
        match = re.search(r"\\boxed\{(.*?)\}", action, re.DOTALL)
        if not match:
            return self._observe("Please use \\boxed{}."), 0.0, False, False, {}
        words = match.group(1).lower().split()
        self.asked.append(tuple(words))
        self.history[tuple(words)] += 1
        if Counter(zip(self.roles, words)) == Counter(self.roles.items()):
            return "You solved it.", 1.0, True, False, {}
        return self._observe("Not quite."), 0.0, False, self.turn >= self.max_turns, {}

    def solution(self):
        return " ".join(self.roles.values())
