"""Sales figures: a single question with a numeric answer, checked by the base class."""
from tool_use_base_env import ToolUseBaseEnv
import random


class SalesReportEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=10):
        super().__init__(max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        self._state = {
            region: [rng.randint(100, 999) for _ in range(4)] for region in ("north", "south", "east")
        }
        self._tools = {
            "get_sales": {
                "description": "Quarterly sales of a region, in dollars.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "region": {"type": "string", "enum": ["north", "south", "east"]}
                    },
                    "required": ["region"],
                },
            }
        }
        self._expected_answer = str(sum(self._state["north"]) - sum(self._state["south"]))
        observation = "How many dollars more did the north sell than the south, over the year?"
        return observation, {"region_count": 3}

    def tool_get_sales(self, region: str) -> str:
        if region not in self._state:
            raise KeyError(region)
        return f"{region}: {self._state[region]}"
