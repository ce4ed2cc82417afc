"""Asks the package index for known vulnerabilities of what is installed here (``make audit``, part of ``make lint``).

One that is known fails. An index that cannot be asked, knows nothing or takes too long is said and does not: a check of
the code must work without network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Vulnerabilities that cannot reach us: their id, and why. Each goes as soon as a fixed version can be pinned.
IGNORED: dict[str, str] = {}
LIMIT_S = 20.0
COMMAND = [str(Path(sys.executable).with_name("pip-audit")), "--local", "--skip-editable", "--format", "json"]
COMMAND += ["--progress-spinner", "off", "--desc", "off", "--timeout", "5"]


def audit(command: list[str], limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Exit code and what to tell."""
    ignored = [word for known in IGNORED for word in ("--ignore-vuln", known)]
    try:
        done = subprocess.run([*command, *ignored], capture_output=True, text=True, timeout=limit_s)
        packages = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return 0, f"not audited: the package index did not answer within {limit_s:.0f} s"
    except OSError as error:
        return 0, f"not audited: pip-audit cannot be run ({error.strerror})"
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return 0, f"not audited: the package index cannot be asked ({reason[:200]})"
    found = [(one["name"], one["version"], hole) for one in packages for hole in one.get("vulns", [])]
    if found:
        lines = [f"  {name} {version}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no version'}"
                 for name, version, hole in found]  # fmt: skip
        return 1, "\n".join(["known vulnerabilities; pin fixed versions, or add the id and why to IGNORED:", *lines])
    known = sum("vulns" in one for one in packages)
    if not known:
        return 0, f"not audited: the package index knows nothing about any of {len(packages)} packages"
    return (
        0,
        f"no known vulnerability in {known} of {len(packages)} packages (the index knows nothing about the others)",
    )


if __name__ == "__main__":
    code, words = audit(COMMAND)
    print(f"dependencies: {words}")
    sys.exit(code)
