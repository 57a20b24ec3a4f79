"""Changes of a file's bytes: what an editor, a bad disk or another program does to it."""

BOM = b"\xef\xbb\xbf"
LATIN = "café".encode("latin-1")


def cut(content):
    return content[: len(content) * 2 // 3]


def first(length):
    return lambda content: content[:length]


def crlf(content):
    return content.replace(b"\n", b"\r\n")


def add(line):
    return lambda content: content + line


def replace(old, new):
    def change(content):
        assert old in content
        return content.replace(old, new, 1)

    return change


def become(content):
    return lambda _: content


JSON_LINES = {
    "same: bom": lambda c: BOM + c,
    "same: crlf": crlf,
    "same: blank lines": lambda c: b"\n\n" + c + b"\n \n",
    "same: no last line end": lambda c: c.rstrip(b"\n"),
    "same: unknown key": replace(b'"text"', b'"lang": 1, "text"'),
    "refused: cut": cut,
    "refused: latin": add(b'{"passage_id": "x", "text": "' + LATIN + b'"}\n'),
    "refused: utf-16": lambda c: c.decode().encode("utf-16"),
    "refused: empty": become(b""),
    "refused: blank": become(b"\n\n"),
    "refused: other key": replace(b'"text"', b'"body"'),
    "refused: list": add(b"[1]\n"),
    "refused: number": replace(b'"Tea came to Britain in 1660."', b"5"),
    "refused: null": replace(b'"Tea came to Britain in 1660."', b"null"),
    "refused: duplicate id": lambda c: c + c.splitlines(keepends=True)[0],
    "refused: nul": add(b"\x00\n"),
    "refused: surrogate": replace(b"Tea came", rb"\ud83d came"),
    "refused: key twice": replace(b'"text"', b'"text": "lost", "text"'),
    "refused: csv": become(b"passage_id,text\n7,tea\n"),
}
"""Of a corpus in JSON lines, whoever reads it."""
