"""``fedrec serve``."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from fedrec.cli.common import DeviceOption, OwnMethodOption, check_path, err
from fedrec.errors import ConfigError
from fedrec.serving.model import load_model

TOKEN = "FEDREC_TOKEN"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    model: Annotated[Path, typer.Argument(help="Folder of an exported model (what -o of export named).")],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine with a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(metavar="N", help="0: any that is free.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help=f"Its first line is the token of every request (also: {TOKEN}).", callback=check_path
        ),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Client parts of known users.", callback=check_path)
    ] = None,
    rate: Annotated[
        float, typer.Option(metavar="N", help="Requests a second of an address; 0: any number.", min=0)
    ] = 50,
    most_kb: Annotated[int, typer.Option(metavar="N", help="Size of a request in kB, at most.", min=1)] = 256,
    device: DeviceOption = "cpu",
    method: OwnMethodOption = None,
) -> None:
    """Answer over HTTP with an exported MODEL, and show a page to try it. No history is stored."""
    try:
        import uvicorn

        from fedrec.serving.service import service
    except ImportError:
        raise ConfigError(
            "the service needs FastAPI and uvicorn; install it with: pip install 'fedrec[serve]'."
        ) from None
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines; give --token-file FILE, or {TOKEN} in the environment."
        )
    loaded = load_model(model, device=device, clients=clients, method=method)
    app = service(loaded, token=token, rate=rate, most_bytes=1024 * most_kb)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,  # paths have ids in them
        log_level="warning",
        server_header=False,
        ws="none",
        limit_concurrency=1000,
        timeout_keep_alive=10,
    )
    with listening(host, port) as found:
        shown = f"[{host}]" if ":" in host else host
        err.print(f"{loaded.info.method} at http://{shown}:{found.getsockname()[1]}/ (end with Ctrl-C)", soft_wrap=True)
        uvicorn.Server(config).run(sockets=[found])


def listening(host: str, port: int) -> socket.socket:
    """A socket there, or a sentence why there is none."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port} cannot be listened on ({error.strerror or error}).") from None


def read_token(path: str | None) -> str | None:
    """The token from a file or the environment; None where there is none."""
    if path is None:
        text = os.environ.get(TOKEN)
    else:
        try:
            text = Path(path).read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {path} cannot be read ({error}).") from None
    if text is None:
        return None
    if len(text.strip()) < 16 or not text.strip().isascii():
        raise ConfigError("a token has 16 characters at least, of plain ASCII; make one with: openssl rand -hex 32")
    return text.strip()


def is_loopback(host: str) -> bool:
    """Whether an address is this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
