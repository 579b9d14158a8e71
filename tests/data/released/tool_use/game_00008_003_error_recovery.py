"""File system: the base class is only in the namespace, a tool fails until it is used rightly."""


class FileTreeEnv(ToolUseBaseEnv):
    def reset(self, seed=None):
        rng = random.Random(seed)
        self._state = {"/": ["notes.txt"], "/archive": [], "locked": True}
        self._code = str(rng.randint(100, 999))
        text = {"type": "string"}
        self._tools = {
            name: {
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": {key: text for key in keys},
                    "required": list(keys),
                },
            }
            for name, description, keys in (
                ("read", "Read a file.", ("path",)),
                ("unlock", "Unlock the archive.", ("code",)),
                ("move", "Move a file of / to the archive.", ("name",)),
            )
        }
        self._user_messages = ["Move notes.txt to the archive. The code is in the file."]
        self._message_criteria = [lambda s: "notes.txt" in s["/archive"]]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[0], {}

    def tool_read(self, path):
        if path != "/notes.txt":
            raise FileNotFoundError(path)
        return f"archive code: {self._code}"

    def tool_unlock(self, code):
        self._state["locked"] = code != self._code
        return "locked" if self._state["locked"] else "unlocked"

    def tool_move(self, name):
        if self._state["locked"]:
            raise PermissionError("the archive is locked")
        self._state["/"].remove(name)
        self._state["/archive"].append(name)
        return "moved" + self._advance_if_done()
