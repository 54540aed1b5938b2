"""Runner and process talk over real pipes: what is said arrives, and neither outlives the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.dialogue import Agent
from experiments.plan import ExperimentError

SPEAKER = """
import sys, time
from experiments.dialogue import Commands, say
commands = Commands(float(sys.argv[1]))
say(event="ready")
while True:
    command = commands.next()
    if command["command"] == "echo":
        say(event="echo", value=command["value"])
    elif command["command"] == "die":
        print("something broke", file=sys.stderr)
        raise SystemExit(3)
    elif command["command"] == "work":
        while True:
            pass
"""


class Here:
    """The namespace that the test itself is in."""

    def popen(self, argv: list[str], *, cpu: int | None = None, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, **options)


@pytest.fixture(autouse=True)
def speaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the module `zs_speaker` one that agents can be started with."""
    (tmp_path / "zs_speaker.py").write_text(SPEAKER)
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{known}" if known else str(tmp_path))


def start(lifetime_s: float = 30) -> Agent:
    return Agent("speaker", Here(), ["zs_speaker", str(lifetime_s)], cpu=None)


def test_what_is_said_arrives_in_order() -> None:
    with start() as agent:
        for number in range(100):
            agent.send("echo", value=number)
        assert [agent.receive("echo", 10)["value"] for _ in range(100)] == list(range(100))


def test_process_is_gone_when_its_block_ends_even_if_it_was_busy() -> None:
    with start() as agent:
        agent.send("work")
        pid = agent.pid
    assert not Path(f"/proc/{pid}").exists()


def test_process_that_dies_is_reported_with_its_last_words() -> None:
    with start() as agent:
        agent.send("die")
        with pytest.raises(ExperimentError, match=r"the speaker ended early \(something broke\)"):
            agent.receive("echo", 10)


def test_process_that_says_nothing_is_not_waited_for_longer_than_asked() -> None:
    with start() as agent:
        begun = time.monotonic()
        with pytest.raises(ExperimentError, match=r"did not answer within 0\.2 s"):
            agent.receive("echo", 0.2)
        assert time.monotonic() - begun < 5


def test_process_ends_by_itself_after_its_lifetime() -> None:
    with start(lifetime_s=1) as agent:
        agent.send("work")
        with pytest.raises(ExperimentError, match="ended early"):
            agent.receive("echo", 10)


def test_process_ends_when_its_runner_is_killed() -> None:
    runner = (
        "import sys, time\n"
        "from experiments.dialogue import Agent\n"
        "import subprocess\n"
        "class Here:\n"
        "    def popen(self, argv, cpu=None, **options):\n"
        "        return subprocess.Popen(argv, **options)\n"
        "with Agent('speaker', Here(), ['zs_speaker', '30'], cpu=None) as agent:\n"
        "    agent.send('work')\n"
        "    print(agent.pid, flush=True)\n"
        "    time.sleep(30)\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", runner], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
