"""What a site says when it cannot connect: one sentence for a wrong certificate, patience where only time is needed."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from pathlib import Path

from fedrec.errors import ConfigError, FedrecError

log = logging.getLogger("fedrec.site")

PATIENCE = 5.0
"""Seconds between two attempts to reach a server."""


def greet(address: str, authority: Path) -> None:
    """Wait until a server answers there, and see that it is the federation's."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"'{address}' is no address of a server; write host:port in site.json.")
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{authority} is no certificate ({error}); carry the site's folder here anew.") from None
    told = ""
    while True:
        try:
            with (
                socket.create_connection((host, int(port)), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=host),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            raise FedrecError(
                f"the server at {address} is not this federation's, or its certificate is no longer valid "
                f"({error.verify_message}); ask its operator."
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != told:
                log.warning("no server answers at %s (%s); trying again and again", address, reason)
                told = reason
            time.sleep(PATIENCE)
