"""Numbers of versions that outlive a process, and mean the same to all who follow the same changes."""

from __future__ import annotations

from pathlib import Path

from pyoxigraph import NamedNode, Triple

from cepheid.knowledge import journal
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.versions import Versions

ROOM = Triple(NamedNode("http://x#r"), NamedNode("http://x#in"), NamedNode("http://x#b"))
HALL = Triple(NamedNode("http://x#h"), NamedNode("http://x#in"), NamedNode("http://x#b"))


def loaded(folder: Path) -> Knowledge:
    knowledge = Knowledge.load(["kb.ttl"], folder=folder, reasoning="none")
    knowledge.keep_versions()
    return knowledge


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text("<http://x#a> <http://x#p> 1 .", encoding="utf-8")
    first = loaded(tmp_path)
    assert first.version == 1
    journal.append(first.journal, [ROOM], [])
    assert first.read_journal() is not None
    journal.append(first.journal, [HALL], [ROOM])
    assert first.read_journal() is not None
    assert first.version == 3
    # The same contents, however they came about.
    again = loaded(tmp_path)
    assert (again.version, again.digest) == (3, first.digest)
    # A file that changed while nobody looked.
    (tmp_path / "kb.ttl").write_text("<http://x#a> <http://x#p> 2 .", encoding="utf-8")
    assert first.reload() is not None
    assert (first.version, loaded(tmp_path).version) == (4, 4)
    assert first.digest == loaded(tmp_path).digest
    assert Knowledge.load(["kb.ttl"], folder=tmp_path, reasoning="none").known_as == 4


def test_two_who_follow_the_same_have_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text("<http://x#a> <http://x#p> 1 .", encoding="utf-8")
    one, other = loaded(tmp_path), loaded(tmp_path)
    for added, removed in (([ROOM], []), ([], [ROOM]), ([ROOM], [])):
        journal.append(one.journal, added, removed)
        one.read_journal()
    assert (one.version, other.version) == (4, 1)
    # The other comes later, and takes all in one.
    other.read_journal()
    assert other.version == 2
    assert other.digest == one.digest


def test_what_contradicts_or_is_cut_off_gets_no_number(tmp_path: Path) -> None:
    file = tmp_path / "versions.jsonl"
    versions = Versions(file)
    assert versions.first("a") == 1
    file.write_bytes(file.read_bytes() + b'{"version": 7, "dig\n')
    assert versions.first("a") == 1
    assert versions.after(1, "b") == 2
    assert (versions.known("a"), versions.known("b"), versions.known("c")) == (1, 2, None)
