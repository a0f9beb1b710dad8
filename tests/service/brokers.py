"""Brokers for the tests: real ones, on loopback, ended when the tests are."""

from __future__ import annotations

import base64
import hashlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the broker ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def find_mosquitto() -> str:
    found = subprocess.run([ROOT / "scripts" / "mosquitto"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"there is no MQTT broker: {found.stderr.strip().splitlines()[-1]}")
    return found.stdout.strip()


def made_certificates(folder: Path) -> Path:
    """Certificates of a broker on loopback and of a client, both of one authority that nobody else knows."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make certificates with")
    made = folder / "certificates"
    made.mkdir()

    def run(*words: str) -> None:
        subprocess.run([openssl, *words], cwd=made, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    (made / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("broker", "client"):
        run("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    for made_key in made.glob("*.key"):
        made_key.chmod(0o644)  # the broker reads it as another user
    return made


@contextmanager
def mosquitto(
    folder: Path, port: int, password: str | None = None, certificates: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that keeps sessions on disk; it can be killed and started again. A password is that of `plant`; with
    `certificates` connections are encrypted, and who connects has to have one (`made_certificates`).
    """
    config = folder / "mosquitto.conf"
    access = "allow_anonymous true"
    if password is not None:
        salt = b"twelve bytes"
        hashed = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
        users = folder / "users"
        users.write_text(f"plant:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(hashed).decode()}\n")
        users.chmod(0o600)
        access = f"allow_anonymous false\npassword_file {users}"
    if certificates is not None:
        access += (
            f"\ncafile {certificates}/ca.pem\ncertfile {certificates}/broker.pem\nkeyfile {certificates}/broker.key"
            "\nrequire_certificate true"
        )
    config.write_text(
        f"listener {port} 127.0.0.1\n{access}\npersistence true\npersistence_location {folder}/\n"
        "autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\nuser root\n"
    )
    with (folder / "mosquitto.log").open("ab") as log:
        process = subprocess.Popen([find_mosquitto(), "-c", str(config)], stdout=log, stderr=log)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)
