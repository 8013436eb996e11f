"""Collects chat templates from archives: template files, JSON values, and Python literals.

    python collect.py <directory of archives> <file to write>
"""

import ast
import hashlib
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path


def members(archive):
    """Yields name and content of every file that may contain a template."""
    wanted = re.compile(r"\.(jinja|jinja2|json|py)$")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if wanted.search(info.filename) and info.file_size < 5_000_000:
                    yield info.filename, opened.read(info)
    else:
        with tarfile.open(archive) as opened:
            for info in opened:
                if info.isfile() and wanted.search(info.name) and info.size < 5_000_000:
                    yield info.name, opened.extractfile(info).read()


def looks_like_template(text):
    """Checks whether a text refers to messages and contains template statements."""
    return "messages" in text and re.search(r"\{%-?\+?\s*(for|if|set|macro)\b", text) and "{%" in text and "%}" in text


def of_json(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from of_json(item)
    elif isinstance(value, list):
        for item in value:
            yield from of_json(item)
    elif isinstance(value, str):
        yield value


def of_python(text):
    """Yields string literals, including concatenations of literals."""

    def constant(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = constant(node.left), constant(node.right)
            return None if left is None or right is None else left + right
        return None

    def walk(node):
        # Docstrings contain examples in prose.
        found = None if isinstance(node, ast.Expr) else constant(node)
        if found is not None:
            yield found
            return
        if isinstance(node, (ast.JoinedStr, ast.Expr)) and not isinstance(getattr(node, "value", None), ast.Call):
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    try:
        yield from walk(ast.parse(text))
    except (SyntaxError, RecursionError, ValueError):
        return


def candidates(name, data):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return
    if "messages" not in text or "{%" not in text:
        return
    if name.endswith((".jinja", ".jinja2")):
        yield text
    elif name.endswith(".json"):
        try:
            yield from of_json(json.loads(text))
        except ValueError:
            return
    else:
        yield from of_python(text)


def main(archives, target):
    found = {}
    for archive in sorted(archives.glob("*-*")):
        package = archive.name.split("-")[0]
        for name, data in members(archive):
            for source in candidates(name, data):
                if looks_like_template(source):
                    digest = hashlib.sha256(source.rstrip("\n").encode("utf-8", "surrogatepass")).hexdigest()
                    first = found.setdefault(digest, {"package": package, "path": name, "source": source, "places": []})
                    first["places"].append(f"{package} {name}")
    target.write_text(json.dumps(found), encoding="utf-8")
    counts = {}
    for template in found.values():
        counts[template["package"]] = counts.get(template["package"], 0) + 1
    print(len(found), "templates:", ", ".join(f"{package} {count}" for package, count in sorted(counts.items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
