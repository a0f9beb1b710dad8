"""The broker to try things with: what may go wrong before it runs."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cepheid.spark.kafka import BrokerNotStarted, kafka


def test_an_identity_may_begin_with_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=b"\xfb" + bytes(15)))
    with kafka(tmp_path):
        assert "cluster.id=-wAAA" in (tmp_path / "topics" / "meta.properties").read_text()


def test_its_last_words_are_shown(tmp_path: Path) -> None:
    (tmp_path / "topics").write_text("not a folder")
    with pytest.raises(BrokerNotStarted, match=r"could not make its folder(?s:.*)topics"), kafka(tmp_path):
        pass
