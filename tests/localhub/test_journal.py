"""The journal's last complete line is the truth, whatever killed its writer."""

import os
from pathlib import Path

import pytest

from conveyor.runtime.localhub import HubRootUnusable
from conveyor.runtime.localhub.journal import JsonLines, cut_torn_tail

WHOLE = b'{"n":1}\n{"n":2}\n'


@pytest.mark.parametrize("torn", [b"", b"{", b'{"n":3}', b'{"n":\n', b"\0\0\0", b'{"n":3}\n\0\0'])
def test_a_torn_tail_is_cut(tmp_path: Path, torn: bytes) -> None:
    """What is left is every whole record and nothing else, and appending goes on after it."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(WHOLE + torn)
    kept = WHOLE + (b'{"n":3}\n' if torn.startswith(b'{"n":3}\n') else b"")
    journal = JsonLines(path, sync=True)
    assert journal.torn_bytes == len(WHOLE + torn) - len(kept)
    journal.append({"n": 9})
    journal.close()
    assert path.read_bytes() == kept + b'{"n":9}\n'


def test_every_cut_of_the_last_line_is_recovered(tmp_path: Path) -> None:
    """Byte by byte: a record is there when its newline is."""
    path = tmp_path / "log.jsonl"
    for length in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:length])
        cut_torn_tail(path)
        assert path.read_bytes() == WHOLE[: WHOLE[:length].rfind(b"\n") + 1]


def test_damage_in_the_middle_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The message names file, line and what to do."""
    path = tmp_path / "log.jsonl"
    content = b'{"n":1}\n#damage\n{"n":3}\n'
    path.write_bytes(content)
    with pytest.raises(HubRootUnusable, match=r"log\.jsonl: line 2 .* Restore"):
        JsonLines(path, sync=True)
    assert path.read_bytes() == content


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that could be written in part only is taken back; the next one is whole."""
    path = tmp_path / "log.jsonl"
    journal = JsonLines(path, sync=True)
    journal.append({"n": 1})
    real_write, full = os.write, [False]

    def short_write(descriptor: int, data: bytes) -> int:
        if full[0]:
            raise OSError(28, "No space left on device")
        full[0] = True
        return real_write(descriptor, bytes(data[:3]))

    monkeypatch.setattr(os, "write", short_write)
    with pytest.raises(OSError, match="No space"):
        journal.append({"n": 2})
    monkeypatch.undo()
    assert path.read_bytes() == b'{"n":1}\n'
    journal.append({"n": 3})
    journal.close()
    assert path.read_bytes() == b'{"n":1}\n{"n":3}\n'


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    """Late writers get an error, not a lost record; closing twice is harmless."""
    journal = JsonLines(tmp_path / "log.jsonl", sync=False)
    journal.close()
    journal.close()
    with pytest.raises(OSError, match="shutting down"):
        journal.append({"n": 1})
