"""The progress display that shows nothing: for libraries, tests and pipes."""


class Silence:
    """Implements ``protocols.Progress`` by saying nothing."""

    def start(self, what: str, total: float | None = None) -> None:
        pass

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def done(self) -> None:
        pass
