"""Find the false coin, heavy or light, with a balance.

family: coin_scale
skill: Logical Deduction
setting: games
kind: hidden_state
split: train
"""

import itertools
import random
import re


class CoinScaleEnv:
    def __init__(self, max_turns=6):
        self.max_turns = max_turns
        self.reset(0)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turns, self.over = 0, False
        self.coins = "".join(sorted(rng.sample("ABCDEFGHJKLMNPQRSTUV", 9)))
        self.coin, self.kind = rng.choice(self.coins), rng.choice(["heavy", "light"])
        self.names = "".join(rng.sample(self.coins, 9))  # order in which solution() picks
        self.left = [(coin, kind) for coin in self.coins for kind in ("heavy", "light")]
        self.weighed = []
        return self._view("The coins lie before you."), {}

    def step(self, action):
        self.turns += 1
        if self.over:
            return "The game is over.", 0.0, True, False, {}
        boxed = re.findall(r"\\boxed\s*\{([^{}]*)\}", str(action))
        text = (boxed[-1] if boxed else str(action)).strip()
        claim = re.fullmatch(r"claim ([a-z]) (heavy|light)", text.lower())
        if claim:
            self.over = True
            if claim.groups() == (self.coin.lower(), self.kind):
                return "You found the false coin.", 1.0, True, False, {}
            return "That claim is wrong. You lost.", 0.0, True, False, {}
        weigh = re.fullmatch(r"weigh ([a-z]{1,4}) ([a-z]{1,4})", text.lower())
        pans = weigh.group(1).upper() + weigh.group(2).upper() if weigh else ""
        known = set(pans) <= set(self.coins) and len(set(pans)) == len(pans)
        if not weigh or not known or len(pans) != 2 * len(weigh.group(1)):
            return self._end("Each pan takes the same number of coins, each coin once.")
        first, second = weigh.group(1).upper(), weigh.group(2).upper()
        result = self._tilt((self.coin, self.kind), first, second)
        self.left = [fault for fault in self.left if self._tilt(fault, first, second) == result]
        self.weighed.append(f"{first} against {second}: {result}")
        return self._end(f"The balance says: {result}.")

    def solution(self):
        if len(self.left) == 1:
            return f"claim {self.left[0][0]} {self.left[0][1]}"
        first, second = self._best()
        return f"weigh {first} {second}"

    def hint(self):
        place = self.coins.index(self.coin)
        group = [coin for i, coin in enumerate(self.coins) if i % 2 == place % 2]
        return (
            f"The false coin is one of {', '.join(group)}. Weigh so that each of the three results "
            "leaves about a third of the possibilities."
        )

    def close(self):
        pass

    def _tilt(self, fault, first, second):
        coin, kind = fault
        if coin not in first and coin not in second:
            return "even"
        return "left pan lower" if (coin in first) == (kind == "heavy") else "right pan lower"

    def _best(self):
        """The weighing whose largest outcome is smallest."""
        best, aim = None, -(-len(self.left) // 3)
        for count in (3, 2, 1):
            for first in itertools.combinations(self.names, count):
                rest = [coin for coin in self.names if coin not in first]
                for second in itertools.combinations(rest, count):
                    results = [self._tilt(fault, first, second) for fault in self.left]
                    worst = max(results.count(result) for result in set(results))
                    if best is None or worst < best[0]:
                        best = (worst, "".join(first), "".join(second))
                    if worst <= aim:
                        return best[1:]
        return best[1:]

    def _end(self, text):
        if self.turns >= self.max_turns:
            self.over = True
            return f"{text} No turns left.", 0.0, False, True, {}
        return self._view(text), 0.0, False, False, {}

    def _view(self, last):
        lines = self.weighed or ["none"]
        return (
            f"One of nine coins {self.coins} is false, either heavier or lighter than the rest.\n"
            "Weighings so far:\n" + "\n".join(lines) + f"\n{last} Turn {self.turns + 1} of "
            f"{self.max_turns}.\n"
            "Act with \\boxed{weigh XY ZW} (coins left and right), or end the "
            "game with \\boxed{claim X KIND}, KIND being heavy or light."
        )
