"""Files are moved and renamed in a tree where a wrong guess about a place is an error.

family: file_tree
skill: Error Recovery
setting: tool_use
kind: multi_turn
split: train
variant: execute
"""

import random

FOLDERS = ["drafts", "photos", "invoices", "music", "notes", "backup"]
STEMS = ["report", "budget", "trip", "song", "recipe", "letter", "plan", "poem"]
ENDINGS = ["txt", "pdf", "csv"]


class FileTreeEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=12):
        super().__init__(max_turns=max_turns)

    def reset(self, seed=None):
        rng = random.Random(seed)
        folders = rng.sample(FOLDERS, 4)
        stems = rng.sample(STEMS, 8)
        tree = {folder: [] for folder in sorted(folders)}
        for place, stem in enumerate(stems):
            tree[folders[place % 4]].append(f"{stem}.{rng.choice(ENDINGS)}")
        self.wrong, self.place = folders[0], folders[1]
        self.file = tree[self.place][0]
        self.stem = self.file.split(".")[0]
        self.new = rng.choice([name for name in FOLDERS if name not in folders])
        self.new_name = f"{rng.choice(['final', 'old', 'copy'])}_{rng.randint(2, 99)}.txt"
        self.mode = rng.choice(["read_only", "private"])
        self._state = {"tree": tree, "modes": {}}
        self._tools = {
            "list_folder": self._tool("List the files of a folder.", folder="string"),
            "find_file": self._tool("Tell which folder holds a file.", name="string"),
            "make_folder": self._tool("Make a folder.", folder="string"),
            "move_file": self._tool(
                "Move a file.", name="string", source="string", target="string"
            ),
            "rename_file": self._tool(
                "Rename a file.", folder="string", name="string", new_name="string"
            ),
            "set_mode": self._tool(
                "Set who may use a folder.",
                folder="string",
                mode=["public", "read_only", "private"],
            ),
            "compress": self._tool("Pack a folder.", folder="string"),
        }
        self._user_messages = [
            f"Move {self.file} from {self.wrong}, or wherever it really is, to {self.new}.",
            f"Call it {self.new_name} there.",
            f"Make {self.new} {self.mode.replace('_', ' ')}.",
        ]
        self._message_criteria = [
            lambda s: self.file in s["tree"].get(self.new, []),
            lambda s: self.new_name in s["tree"].get(self.new, []),
            lambda s: s["modes"].get(self.new) == self.mode,
        ]
        self._expected_answer = "done"
        return self._build_observation(), {}

    def tool_list_folder(self, folder):
        if folder not in self._state["tree"]:
            return "Error: no such folder"
        return ", ".join(self._state["tree"][folder]) or "empty"

    def tool_find_file(self, name):
        places = [folder for folder, files in self._state["tree"].items() if name in files]
        return f"In {places[0]}" if places else "Error: no such file"

    def tool_make_folder(self, folder):
        if folder in self._state["tree"]:
            return "Error: that folder exists"
        if not 0 < len(str(folder)) < 40:
            return "Error: give a short name"
        self._state["tree"][str(folder)] = []
        return "Folder made"

    def tool_move_file(self, name, source, target):
        tree = self._state["tree"]
        if name not in tree.get(source, []):
            return "Error: the file is not in the source folder"
        if target not in tree:
            return "Error: the target folder does not exist"
        tree[source].remove(name)
        tree[target].append(name)
        return "Moved"

    def tool_rename_file(self, folder, name, new_name):
        files = self._state["tree"].get(folder, [])
        if name not in files or new_name in files:
            return "Error: no such file there, or the new name is taken"
        files[files.index(name)] = str(new_name)
        return "Renamed"

    def tool_set_mode(self, folder, mode):
        if folder not in self._state["tree"]:
            return "Error: no such folder"
        if mode not in ("public", "read_only", "private"):
            return "Error: mode must be public, read_only or private"
        self._state["modes"][folder] = mode
        return "Mode set"

    def tool_compress(self, folder):
        return "Error: not enough room to pack"

    def solution(self):
        called = [entry["name"] for entry in self._call_history]
        if self._current_msg == 0 and "find_file" not in called:
            return self._call("find_file", name=self.file)
        if self._current_msg == 0 and self.new not in self._state["tree"]:
            return self._call("make_folder", folder=self.new)
        if self._current_msg == 0:
            places = [f for f, files in self._state["tree"].items() if self.file in files]
            source = places[0] if places else self.place
            return self._call("move_file", name=self.file, source=source, target=self.new)
        if self._current_msg == 1:
            return self._call(
                "rename_file", folder=self.new, name=self.file, new_name=self.new_name
            )
        if self._current_msg == 2:
            return self._call("set_mode", folder=self.new, mode=self.mode)
        return self._answer()

    def hint(self):
        return (
            "The user may be wrong about where the file is; find it. A target folder that does not "
            "exist must be made before anything can move there."
        )
