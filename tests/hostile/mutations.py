"""Damage done to documents at random, the same for the same random numbers."""

from collections.abc import Callable
from random import Random

from tests.hostile.seeds import Seed, make_zip, read_zip

Damage = Callable[[Random, bytes], bytes]

_LONGEST_PIECE = 400


def truncate(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content))]


def behead(random: Random, content: bytes) -> bytes:
    return content[random.randrange(len(content)) + 1 :]


def flip_bits(random: Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(random.choice((1, 3, 20, 200))):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def insert_bytes(random: Random, content: bytes) -> bytes:
    start, _ = _piece(random, content)
    return content[:start] + random.randbytes(random.randrange(1, 200)) + content[start:]


def delete_piece(random: Random, content: bytes) -> bytes:
    start, end = _piece(random, content)
    return content[:start] + content[end:]


def repeat_piece(random: Random, content: bytes) -> bytes:
    start, end = _piece(random, content)
    return content[:end] + content[start:end] * random.randrange(1, 50) + content[end:]


def blank_piece(random: Random, content: bytes) -> bytes:
    start, end = _piece(random, content)
    return content[:start] + bytes(end - start) + content[end:]


def swap_pieces(random: Random, content: bytes) -> bytes:
    start, end = _piece(random, content)
    return content[end:] + content[start:end] + content[:start]


def change_numbers(random: Random, content: bytes) -> bytes:
    """Counts, lengths and offsets are where parsers believe a document."""
    places = [i for i, byte in enumerate(content) if 0x30 <= byte <= 0x39]
    damaged = bytearray(content)
    for place in random.sample(places, min(len(places), 5)):
        damaged[place : place + 1] = random.choice((b"9", b"0", b"-1", b"99999999", b"4294967295"))
    return bytes(damaged)


DAMAGES: tuple[Damage, ...] = (
    truncate,
    behead,
    flip_bits,
    insert_bytes,
    delete_piece,
    repeat_piece,
    blank_piece,
    swap_pieces,
    change_numbers,
)


def damage(random: Random, seed: Seed) -> tuple[str, bytes]:
    """A name for what was done, and the result."""
    kind = random.choice(DAMAGES)
    entries = _entries(seed.content) if random.random() < 0.6 else {}
    if any(entries.values()):
        return f"{kind.__name__}-inside", _damage_inside(random, entries, kind)
    return kind.__name__, kind(random, seed.content)


def _entries(content: bytes) -> dict[str, bytes]:
    """What is in an archive; nothing when it is none, or broken already."""
    try:
        return read_zip(content)
    except Exception:
        return {}


def _damage_inside(random: Random, entries: dict[str, bytes], kind: Damage) -> bytes:
    """One part damaged in an archive that is whole: no checksum gives it away."""
    written = [name for name, part in entries.items() if part]
    body = [name for name in written if name.startswith("word/document")]
    victim = random.choice(body or written if random.random() < 0.5 else written)
    return make_zip(entries | {victim: kind(random, entries[victim])})


def _piece(random: Random, content: bytes) -> tuple[int, int]:
    start = random.randrange(len(content))
    return start, min(len(content), start + random.randrange(1, _LONGEST_PIECE))
