#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the prose of Markdown files, docstrings and comments.

    python tools/check_prose.py FILES
    python tools/check_prose.py --changed REVISION

Finds sentences above 25 words (numbers do not count) and words that make people of
things. Finds Markdown lines above 100 columns, except in tables and code. Finds private
letters of benchmark cases, and docstrings that open without a verb. Prints
``file:line: message``; exits with 1 on findings. In comments it checks words only.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 25
MOST_COLUMNS = 100
PEOPLE = "users|user|people|readers|reader|anyone|everyone|those|authors|engineers"
NOT_PEOPLE = "".join(f"(?<!{person} )" for person in PEOPLE.split("|"))
WORDS = {  # a pattern: what to write instead
    rf"{NOT_PEOPLE}\bwho(?:ever|m)?\b": "name the component",
    r"\b(?:no|some|any|every)body\b": "name the component",
    r"\bsomeone else\b": "name the component",
    r"\b(?:is|are|was|were|be|been) (?:not )?told\b": "say 'receives' or 'is passed'",
    r"\bask(?:s|ed|ing)? (?:for|again|ahead|whether)\b": "say 'load' or 'prefetch'",
    r"\basks\b": "say 'load', 'prefetch', 'read' or 'require'",
    r"\b(?:is|are|was|were) asked\b": "say 'is loaded', 'is read' or 'is checked'",
    r"\b(?:goes|go|went|gone) away\b": "say 'is removed' or 'is freed'",
    r"\bgiv(?:en|es|e|ing) (?:\w+ )?away\b|\bgave away\b": "say 'donate' or 'reuse'",
    r"\b(?:given|takes?|took) (?:\w+ )?for good\b": "say 'donate'",
    r"\b(?:rows?|keys?|ids?)(?: that)?(?: has| have)?(?: ever)? (?:left|leaves?)\b": (
        "say 'evict'"
    ),
    r"\bbrought together\b|\bbring(?:s|ing)? together\b": "say 'group'",
    r"\bput in order\b": "say 'sort'",
    r"\bat work\b": "say 'running'",
    r"\banew\b": "say 'again'",
}
LETTER = r"(?:c64|[a-epqr])"
LETTERS = re.compile(
    rf"\bcases? `?{LETTER}`?(?![\w'-])|\bc64\b|(?<![\w'`-]){LETTER}'s\b"
    rf"|\({LETTER}(?:, {LETTER})+\)"
)
LETTER_PAGES = (  # pages that define the letters, and the code that does
    "docs/performance.md",
    "docs/api/command_line.md",
    "benchmarks/README.md",
    "benchmarks/suite/workloads.py",
)
# A docstring's first line that opens with "The" needs one of these, or a verb in -s.
VERBS = re.compile(r"is|are|was|were|has|have|does|do|can|may|must|will|cannot")
NO_VERBS = re.compile(r"ids|rows|keys|slots|tables|columns|bags|bytes|.*'s|.*ss|.{,3}s")
OPENERS = ("Of", "By", "Those", "What", "From")
CODE = (".py", ".h", ".cc", ".cu", ".cuh")

Finding = tuple[int, str]


def words_of(text: str) -> Iterator[str]:
    """Yields a message for each banned phrase in a text."""
    plain = re.sub(r"`[^`]*`", "`", text)
    for pattern, advice in WORDS.items():
        for match in re.finditer(pattern, plain, re.IGNORECASE):
            yield f"'{match.group()}': {advice}."


def letters_of(name: str, text: str) -> Iterator[str]:
    """Yields a message for each private letter of a benchmark case."""
    if not name.endswith(LETTER_PAGES):
        for match in LETTERS.finditer(text):
            yield f"'{match.group()}': write the workload's shape."


def long_sentences(text: str) -> Iterator[str]:
    """Yields a message for each sentence of a paragraph with too many words."""
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    plain = re.sub(r"\b(e\.g|i\.e|vs|etc)\.", r"\1", plain)
    for sentence in re.split(r"(?<=[.!?])[)*\"']*\s+", plain):
        count = sum(any(c.isalpha() for c in word) for word in sentence.split())
        if count > MOST_WORDS:
            start = " ".join(sentence.split()[:5])
            yield f"{count} words (at most {MOST_WORDS}): '{start} ...'"


def paragraphs(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the first line number and the text of each paragraph, item and cell."""
    start, gathered = 0, []
    item = re.compile(r"\s*(?:[-*+]|\d+\.)\s|\s*[\w`*., ]+?: |#|>")
    for number, line in [*lines, (0, "")]:
        cells = line.strip().startswith("|")
        if re.fullmatch(r"\s*\w+:\s*", line):  # the heading of a docstring's section
            line = ""
        if gathered and (not line.strip() or cells or item.match(line)):
            yield start, " ".join(gathered)
            gathered = []
        if cells:
            yield from ((number, cell.strip()) for cell in line.strip("| ").split("|"))
        elif line.strip():
            start = start if gathered else number
            gathered.append(line.strip())


def check_text(name: str, lines: list[tuple[int, str]]) -> Iterator[Finding]:
    """Yields the findings of a Markdown file or a docstring, code left out."""
    for number, text in paragraphs(lines):
        for check in (words_of(text), letters_of(name, text), long_sentences(text)):
            yield from ((number, message) for message in check)


def markdown_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines outside fenced code; a fence is an empty line."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and not fence:
            fence = mark.group(1)
        elif mark and line.strip() == fence:
            fence, line = "", ""
        yield number, "" if fence else line


def check_markdown(name: str, text: str) -> Iterator[Finding]:
    """Yields the findings of a Markdown file."""
    lines = list(markdown_lines(text))
    for number, line in lines:
        if len(line) > MOST_COLUMNS and not line.lstrip().startswith("|"):
            yield number, f"{len(line)} columns (at most {MOST_COLUMNS})."
    yield from check_text(name, lines)


def has_verb(line: str) -> bool:
    """Whether a line that opens with 'The' seems to hold a finite verb."""
    words = re.findall(r"[a-z']+", line.split(":")[0])[1:]
    return any(
        VERBS.fullmatch(word) or (word.endswith("s") and not NO_VERBS.fullmatch(word))
        for word in words
    )


def check_docstring(name: str, start: int, text: str) -> Iterator[Finding]:
    """Yields the findings of a docstring that begins on line `start`."""
    first = text.strip().split("\n")[0]
    opener = first.split(" ")[0]
    if opener in OPENERS or (opener == "The" and not has_verb(first)):
        yield start, f"docstring opens with '{opener}': begin with a verb."
    indent = min(
        (len(x) - len(x.lstrip()) for x in text.split("\n")[1:] if x.strip()), default=0
    )
    lines = [
        (start + offset, "" if line[indent:].startswith("        ") else line)
        for offset, line in enumerate(text.split("\n"))
    ]
    yield from check_text(name, lines)


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def check_code(name: str, text: str) -> Iterator[Finding]:
    """Yields the findings of a Python, C++ or CUDA file."""
    if name.endswith(".py"):
        comments = list(python_comments(text))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, kinds) and ast.get_docstring(node) is not None:
                held = node.body[0]
                docstring = ast.get_docstring(node, clean=False)
                yield from check_docstring(name, held.lineno, docstring or "")
    else:
        lines = enumerate(text.splitlines(), 1)
        comments = [(n, line[line.index("//") :]) for n, line in lines if "//" in line]
    for number, comment in comments:
        for message in (*words_of(comment), *letters_of(name, comment)):
            yield number, message


def check_file(path: Path, name: str) -> list[Finding]:
    """Returns the findings of a file, in the order of lines."""
    if path.suffix not in (*CODE, ".md") or not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    check = check_markdown if path.suffix == ".md" else check_code
    return sorted(check(name, text))


def changed_files(root: Path, revision: str) -> list[str]:
    """Returns the files that differ between a revision and the working tree."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", revision, "--"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"check_prose: {done.stderr.strip()}")
    return done.stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Checks the files; returns the exit status."""
    parser = argparse.ArgumentParser(description="Checks prose.")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=here)
    parser.add_argument("--changed", help="check what changed since this revision")
    parser.add_argument("files", nargs="*", help="relative to the root")
    options = parser.parse_args(arguments)
    names = list(options.files)
    if options.changed:
        names += changed_files(options.root, options.changed)
    count = 0
    for name in names:
        for number, message in check_file(options.root / name, name):
            count += 1
            print(f"{name}:{number}: {message}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
