"""The development Redis' configuration, in a real server of each kind. Needs helm to render it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import redis
from support.servers import KINDS, binary_or_skip

from .conftest import Helm

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_wants_the_password_keeps_a_log_and_forgets_nothing(helm: Helm, tmp_path: Path, kind: str) -> None:
    program = binary_or_skip(kind)
    rendered = helm()
    made = next(s for s in rendered.of("Secret") if "stringData" in s)["stringData"]
    assert rendered.pods["ff-flashfleet-redis"]["containers"][0]["command"] == ["redis-server", "/etc/redis/redis.conf"]
    text = rendered.one("ConfigMap", "-redis")["data"]["redis.conf"]
    # As in the pod, but for its paths; and a socket file instead of a port that somebody may have taken.
    for old, new in (("/etc/redis-auth", str(tmp_path)), ("dir /data", f"dir {tmp_path}"), ("port 6379", "port 0")):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "redis.conf").write_text(text + f"\nunixsocket {tmp_path}/s\n")
    (tmp_path / "auth.conf").write_text(made["auth.conf"])
    server = subprocess.Popen([program, str(tmp_path / "redis.conf")], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / "s").exists():
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        with redis.Redis(unix_socket_path=str(tmp_path / "s")) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.ping()
        with redis.Redis(unix_socket_path=str(tmp_path / "s"), password=made["password"]) as client:
            assert client.set("a", "b")
            said = client.config_get("*")
        assert said["maxmemory-policy"] == "noeviction"
        assert said["maxmemory"] == str(192 * 1024 * 1024)
        assert said["save"] == ""
        assert (tmp_path / "appendonlydir").is_dir()
    finally:
        server.kill()
        server.wait()
