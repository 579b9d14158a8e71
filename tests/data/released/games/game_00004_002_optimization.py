"""Trading Post: a multi-turn agentic game with an explicit win and an explicit loss."""
import random
import re


class Market:
    """Auxiliary class, not an environment."""

    def __init__(self, rng):
        self.prices = [rng.randint(5, 9), rng.randint(12, 18), rng.randint(6, 10)]


class TradingPostEnv:
    """Buy low, sell high within the turn limit."""

    GOODS = ("salt", "silk", "tea")

    def __init__(self, max_turns=8):
        self.max_turns = max_turns
        self.turn = 0
        self.gold = 0
        self.stock = {}
        self.market = None

    def reset(self, seed=None):
        random.seed(seed)
        rng = random.Random(random.random())
        self.market = Market(rng)
        self.turn = 0
        self.gold = 20
        self.stock = {good: 0 for good in self.GOODS}
        self.target = 36
        return self._render("Welcome to the trading post."), {}

    def _price(self, good):
        base = self.market.prices[self.GOODS.index(good)]
        return base + (8 if good == "salt" and self.turn > 2 else 0)

    def _render(self, message):
        prices = ", ".join(f"{good} {self._price(good)}" for good in self.GOODS)
        stock = ", ".join(f"{good} x{count}" for good, count in self.stock.items())
        return (
            f"{message}\nGold: {self.gold}. Goal: {self.target}. Stock: {stock}.\n"
            f"Prices: {prices}. Turn {self.turn} of {self.max_turns}.\n"
            "Actions: \\boxed{buy GOOD}, \\boxed{sell GOOD}, \\boxed{wait}. Salt gets scarce."
        )

    def step(self, action):
        self.turn += 1
        match = re.search(r"\\boxed\{(.+?)\}", action)
        words = match.group(1).strip().lower().split() if match else []
        message = "I did not understand that."
        if words[:1] == ["wait"]:
            message = "Time passes."
        elif len(words) == 2 and words[1] in self.stock:
            verb, good = words
            if verb == "buy" and self.gold >= self._price(good):
                self.gold -= self._price(good)
                self.stock[good] += 1
                message = f"You bought {good}."
            elif verb == "sell" and self.stock[good] > 0:
                self.gold += self._price(good)
                self.stock[good] -= 1
                message = f"You sold {good}."
            else:
                message = "That trade is not possible."
        if self.gold >= self.target:
            return "You reached the goal!", 1.0, True, False, {}
        if self.gold < 3 and not any(self.stock.values()):
            return "You are ruined.", 0.0, True, False, {}
        if self.turn >= self.max_turns:
            return "The market closes.", 0.0, False, True, {}
        return self._render(message), 0.0, False, False, {}

    def render(self):
        return self._render("")
