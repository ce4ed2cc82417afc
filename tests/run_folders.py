"""Changes files of run folders as somebody would who knows how they are checked."""

import json

from fedrec.running.files import checksum


def change(folder, name, how):
    """Replace a JSON file of a finished run by ``how`` of its content, and make the manifest believe it."""
    path, manifest = folder / name, folder / "manifest.json"
    path.write_text(json.dumps(how(json.loads(path.read_text()))))
    known = json.loads(manifest.read_text())
    if name in known["files"]:
        known["files"][name] = checksum(path)
        manifest.write_text(json.dumps(known))
