"""The one error type of the pre-filter. What goes wrong is said where it is raised, not here."""


class XdpError(Exception):
    """Something the user must know and can act on: `message` says what and where, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}: {hint}")
        self.message = message
        self.hint = hint
