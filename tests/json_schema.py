"""The part of JSON Schema that the result's schema uses, to check real results against it."""

KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}
KINDS["number"] = (int, float)


def violations(value, schema, root=None, where="result"):
    """Every place where a value is not what the schema says."""
    root = root or schema
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where)
    if "anyOf" in schema:
        found = [violations(value, option, root, where) for option in schema["anyOf"]]
        return [] if [] in found else [f"{where} fits no alternative"]
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return [f"{where} is no {kind}"]
    if value != schema.get("const", value) or value not in schema.get("enum", [value]):
        return [f"{where} is none of the allowed values"]
    found = []
    if kind == "object":
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where} lacks {name}" for name in schema.get("required", ()) if name not in value]
        for name, member in value.items():
            if name not in known and more is False:
                found.append(f"{where} has {name}, which is unknown")
            elif isinstance(known.get(name, more), dict):
                found += violations(member, known.get(name, more), root, f"{where}.{name}")
    if kind == "array" and "items" in schema:
        for number, member in enumerate(value):
            found += violations(member, schema["items"], root, f"{where}[{number}]")
    return found
