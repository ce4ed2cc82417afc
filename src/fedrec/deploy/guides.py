"""What an operator finds beside the keys: how to start, what to keep secret, and services that start again by themselves."""

from __future__ import annotations

from fedrec.deploy.folders import ServerSettings, SiteSettings

_SCRIPT = """#!/bin/sh
# {what}. Extra words are passed on.
cd "$(dirname "$0")" && exec ${{FEDREC:-fedrec}} federation {command} . "$@"
"""

_SERVICE = """# {what}. Copy to /etc/systemd/system, set the lines with a path or a user, then:
#   systemctl daemon-reload && systemctl enable --now {unit}
[Unit]
Description={what}
After=network-online.target
Wants=network-online.target

[Service]
User=fedrec
WorkingDirectory=/srv/fedrec/{folder}
Environment=XDG_CACHE_HOME=/srv/fedrec/{folder}/.cache
ExecStart=/srv/fedrec/venv/bin/fedrec federation {command} /srv/fedrec/{folder}
Restart=always
RestartSec=10
UMask=0077
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ReadWritePaths=/srv/fedrec/{folder}

[Install]
WantedBy=multi-user.target
"""

_SERVER = """# The server of {name}

1. Install: `pip install 'fedrec[deploy]'`, the same version as at the sites.
2. Start: `./start.sh`, or the service `fedrec-server.service`. It listens on {listen}, port {port}.
   Sites reach it as {host}; open that port for them, and no other one.
3. Name the items, if they are not yet: `fedrec federation catalogue . items.csv`. Sites leave out what is not listed. Or let
   sites agree on them without telling you: `--private-catalogue` for every run.
4. `fedrec federation status .` shows which sites are connected.
5. `fedrec federation run fedmf --rounds 20`, in this folder, trains. It goes on after an interruption with `--resume`.

Keep secret: `server.key` and `secret`. Runs are started on this machine only.
Sites: {sites}.
"""

_SITE = """# Site {name} of {federation}

1. Install: `pip install 'fedrec[deploy]'`, the same version as at the server.
2. Start: `./start.sh --data site.csv`, or the service `fedrec-{name}.service`. The file has the columns user and item
   and, if you have them, rating and timestamp. It is remembered: later `./start.sh` is enough.
   The site calls the server at {server}; nobody needs to reach the site.
3. Recommend, once a run has ended: `fedrec federation recommend . --user ID`.

What leaves the site: per round sums over its users (or their uploads, where a method needs them: the server's operator
tells which), how many training items each user has, and sums of metrics over at least {smallest} users.
What never leaves: the data, ids of users, and private state, which lies in `runs/`. Back it up as you do the data.
Keep secret: `site.key`, which is how the server knows this site, and `items.key`, which all sites have and the server must not.
"""

_WHOLE = """# {name}

- `server/` goes to the server's machine, each folder in `sites/` to its site.
- `authority/ca.key` signs servers' certificates. Keep it off line; nobody needs it to run the federation.
- Each folder has a README for its operator.
"""


def server(settings: ServerSettings) -> dict[str, str]:
    """Files for the server's operator."""
    words = {"what": f"The server of {settings.name}", "command": "server", "folder": "server"}
    return {
        "start.sh": _SCRIPT.format(**words),
        "fedrec-server.service": _SERVICE.format(unit="fedrec-server", **words),
        "README.md": _SERVER.format(**settings.model_dump(exclude={"sites"}), sites=", ".join(settings.sites)),
    }


def site(settings: SiteSettings) -> dict[str, str]:
    """Files for a site's operator."""
    what = f"Site {settings.name} of {settings.federation}"
    words = {"what": what, "command": "site", "folder": settings.name}
    about = settings.model_dump(include={"name", "federation", "server"}) | {"smallest": settings.smallest_group}
    return {
        "start.sh": _SCRIPT.format(**words),
        f"fedrec-{settings.name}.service": _SERVICE.format(unit=f"fedrec-{settings.name}", **words),
        "README.md": _SITE.format(**about),
    }


def whole(settings: ServerSettings) -> dict[str, str]:
    """What to carry where."""
    return {"README.md": _WHOLE.format(name=settings.name)}
