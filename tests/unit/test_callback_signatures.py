"""Signatures, addresses and secrets of the receiver: the helpers of both sides."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from awa_pool import AsyncClient, Client, ConfigError, ValidationError
from awa_pool.receiver import SIGNATURE_HEADER, asgi_app, build_callback_url, sign, verify
from awa_pool.receiver.keys import found_secrets
from awa_pool.receiver.reading import Room, Shelf
from awa_pool.receiver.replies import Refused, refusal

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
SECRET, OTHER = "k" * 32, "o" * 64


def test_a_signature_is_hmac_sha256_over_id_action_and_body_each_on_its_line() -> None:
    wanted = hmac.new(SECRET.encode(), f"{ID}\ncomplete\n".encode() + b"{}", hashlib.sha256).hexdigest()
    assert sign(SECRET, ID, "complete", b"{}") == sign(SECRET, UUID(ID), "complete", b"{}") == wanted
    assert SIGNATURE_HEADER == "X-Awa-Signature"


def test_either_of_two_secrets_verifies_and_nothing_else_does() -> None:
    good = sign(SECRET, ID, "fail", b"{}")
    for secrets in (SECRET, [SECRET], [OTHER, SECRET], [SECRET, OTHER]):
        assert verify(secrets, ID, "fail", b"{}", good)
        assert verify(secrets, ID, "fail", b"{}", good.upper())
    assert not verify(OTHER, ID, "fail", b"{}", good)
    for wrong in ("", "é", good[:-1], good + "0", f"sha256={good}"):
        assert not verify(SECRET, ID, "fail", b"{}", wrong)
    assert not verify(SECRET, ID, "complete", b"{}", good)
    assert not verify(SECRET, ID, "fail", b"{} ", good)
    assert not verify(SECRET, ID[:-1] + "f", "fail", b"{}", good)
    with pytest.raises(ConfigError):
        verify([], ID, "fail", b"{}", good)


def test_a_line_feed_in_an_id_cannot_move_the_borders() -> None:
    body = b"fail\n{}"
    good = sign(SECRET, ID, "complete", body)
    assert not verify(SECRET, f"{ID}\ncomplete", "fail", b"{}", good)
    for bad in (f"{ID}\n", "", "5", ID.replace("-", ""), f" {ID}"):
        with pytest.raises(ValidationError, match="callback_id"):
            sign(SECRET, bad, "complete", b"")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("short", ID, "fail", b""), "32 to 512"),
        ((SECRET + " ", ID, "fail", b""), "no blanks"),
        ((SECRET, ID, "cancel", b""), "action: expected one of complete"),
        ((SECRET, ID, "fail", "{}"), "body: expected the bytes"),
        ((SECRET, 5, "fail", b""), "callback_id"),
    ],
)
def test_what_cannot_be_signed_is_named(values: tuple[Any, ...], words: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=words) as told:
        sign(*values)
    assert "short" not in str(told.value)


def test_an_address_leads_to_the_receiver() -> None:
    assert build_callback_url("https://jobs.example.com/", ID) == (
        f"https://jobs.example.com/api/callbacks/{ID}/complete"
    )
    assert build_callback_url("http://h:1/base", UUID(ID), "fail", prefix="") == f"http://h:1/base/{ID}/fail"
    for base in ("jobs.example.com", "ftp://h", "https://", "https://h/?q=1", "", None):
        with pytest.raises(ValidationError, match="base_url"):
            build_callback_url(base, ID)  # type: ignore[arg-type]
    for prefix in ("api", "/a b", "/a//b", "/{id}", "/é"):
        with pytest.raises(ValidationError, match="prefix"):
            build_callback_url("https://h", ID, prefix=prefix)


def test_secrets_are_found_in_a_file_before_the_variable(tmp_path: Path) -> None:
    variable = {"AWA_POOL_CALLBACK_SECRET": f" {SECRET} , {OTHER}\n"}
    assert found_secrets(None, {}) == ()
    assert found_secrets(None, variable) == (SECRET, OTHER)
    file = tmp_path / "f"
    file.write_text(f"{OTHER}\n\n{OTHER}\n")
    assert found_secrets(str(file), variable) == (OTHER,)
    file.write_bytes(b"\xff" * 40)
    with pytest.raises(ConfigError, match="no file of secrets"):
        found_secrets(str(file), {})
    with pytest.raises(ConfigError, match="Is a directory"):
        found_secrets(str(tmp_path), {})


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)])
def test_a_file_of_secrets_that_others_can_read_or_change_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file = tmp_path / "f"
    file.write_text(SECRET)
    file.chmod(mode)
    assert found_secrets(str(file), {}) == (SECRET,)
    assert (f"`chmod o-rwx,g-w {file}`" in caplog.text) is warned and SECRET not in caplog.text


def test_replies_are_written_as_they_read() -> None:
    assert refusal(404, "POST to …/ID, \udc80").body == '{"error": "POST to …/ID, \\udc80"}\n'.encode()


def test_an_app_is_not_made_where_anybody_could_answer() -> None:
    client = Client("host=x")
    with pytest.raises(ConfigError, match="no secret"):
        asgi_app(client)
    with pytest.raises(ConfigError, match="leave one"):
        asgi_app(client, secrets=SECRET, allow_unsigned=True)
    with pytest.raises(ConfigError, match="expected an awa_pool.Client"):
        asgi_app("host=x", secrets=SECRET)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="max_body_bytes"):
        asgi_app(client, secrets=SECRET, max_body_bytes=0)
    with pytest.raises(ValidationError, match="read_timeout_s"):
        asgi_app(client, secrets=SECRET, read_timeout_s=float("nan"))
    with pytest.raises(ValidationError, match="prefix"):
        asgi_app(client, secrets=SECRET, prefix="api")
    for made in (client, AsyncClient("host=x")):
        assert asgi_app(made, secrets=[SECRET, OTHER], allow_unsigned=False)


def test_bodies_on_their_way_share_a_room_that_they_give_back() -> None:
    room = Room(100)
    with room.lent() as shelf:
        shelf.put(60)
        with pytest.raises(Refused) as told, room.lent() as other:
            _fill(other)
        assert told.value.reply.status == 503 and told.value.reply.headers["Retry-After"]
    with room.lent() as shelf:
        shelf.put(100)


def _fill(shelf: Shelf) -> None:
    shelf.put(40)
    shelf.put(1)


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_helpers_load_nothing_heavy() -> None:
    done = _run(
        "import sys; from awa_pool.receiver import asgi_app, build_callback_url, sign, verify; print(sorted(sys.modules.keys()"
        " & {'starlette', 'uvicorn', 'psycopg', 'prometheus_client', 'asyncio', 'typer', 'awa_pool.client'}))"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named_with_the_command_that_brings_it(missing: str) -> None:
    done = _run(
        f"import sys; sys.modules[{missing!r}] = None\nfrom awa_pool.cli import main; sys.exit(main(['callbacks']))"
    )
    assert done.returncode == 2 and f"needs {missing}: run pip install 'awa-pool[callbacks]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
