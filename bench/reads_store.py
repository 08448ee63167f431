"""A large store for the bench of reads: texts, fields and vectors that are spread as real ones are.

Words follow Zipf's law, a third of them by the topic of the document. Some words and phrases are
planted at known shares, for the bench to search for. Vectors lie around those that the default
embedder makes of real texts of the store.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from penstock.documents import Passage
from penstock.embed.embedder import WordLlamaEmbedder
from penstock.search.passages import store_passages
from penstock.settings import EmbeddingSettings
from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, texts
from penstock.text.passages import cut_passages
from tests.factories import TENANT
from tests.filled import EVENTS, FilledStore, node_id_of, node_row

# In every document; in every fifth, sixth and seventh; in one of a thousand.
EVERYWHERE, COMMON, RARE = "quarterlyx", ("turbinex", "bearingx", "governorx"), "sluicex"
# In one of two hundred documents, its words in every twentieth; and in every document.
PHRASE, COMMON_PHRASE = "spillwayx gatex", "annualx reviewx"
SKILLS = ("Python", "PostgreSQL", "Kubernetes", "Welding", "Hydrology", "COBOL")
# The last of them is in one of two hundred documents.
_RARE_SKILL_EVERY = 200
SENIORITIES = ("junior", "medium", "senior", "principal")
SMALL_TENANT = "tenant1"
# Runs and the share of the documents that each of them has.
_RUNS = (
    (TENANT, 0.55),
    (TENANT, 0.2),
    (TENANT, 0.1),
    (TENANT, 0.05),
    *((f"tenant{number}", 0.02) for number in range(1, 6)),
)
_PASSAGE_CHARS = EmbeddingSettings().passage_chars
_TOPICS, _TOPIC_WORDS = 200, 300
_WORDS = 420
_BATCH = 5_000
_BASES = 4_000
# How far vectors lie from the one they are made around, in its lengths.
_SPREAD = 0.5
Numbers = NDArray[Any]


def fill(database: Database, documents: int) -> FilledStore:
    """So many documents, three work items and ten log lines each."""
    contents = SpreadContents()
    store = FilledStore.make(
        database, [tenant for tenant, _ in _RUNS], contents, messages=EVENTS * 2
    )
    for place, (_, share) in enumerate(_RUNS):
        most = round(documents * share)
        for had in range(0, most, _BATCH):
            store.grow_run(place, had, min(had + _BATCH, most))
    store.index_vectors()
    store.analyze()
    return store


@dataclass(slots=True)
class _Vocabulary:
    words: Numbers
    shares: Numbers
    """Summed up over the words, the most frequent first."""

    @classmethod
    def make(cls, words: Numbers) -> "_Vocabulary":
        weights = 1.0 / (np.arange(len(words)) + 2.7)
        return cls(words, np.cumsum(weights / weights.sum()))

    def draw(self, random: np.random.Generator, shape: tuple[int, int]) -> Numbers:
        places = np.searchsorted(self.shares, random.random(shape))
        return np.minimum(places, len(self.words) - 1)


@dataclass
class SpreadContents:
    """Contents of one seed: the same on every database."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    embedder: WordLlamaEmbedder = field(default_factory=WordLlamaEmbedder)
    _written: int = 0
    _bases: Numbers | None = None

    @property
    def identity(self) -> str:
        return self.embedder.identity

    @cached_property
    def _vocabulary(self) -> _Vocabulary:
        """Words of the embedder's own vocabulary, in no order of meaning."""
        _, tokenizer = self.embedder.load()
        tokens = {token.lstrip("Ġ▁") for token in tokenizer.get_vocab()}
        words = sorted(one for one in tokens if len(one) > 2 and one.isascii() and one.islower())
        return _Vocabulary.make(np.random.default_rng(1).permutation(np.array(words, object)))

    @cached_property
    def _topics(self) -> tuple[Numbers, _Vocabulary]:
        """The words of each topic, and how often each place in such a list is used."""
        shape = (_TOPICS, _TOPIC_WORDS)
        places = np.random.default_rng(2).integers(50, len(self._vocabulary.words), shape)
        return places, _Vocabulary.make(np.arange(_TOPIC_WORDS))

    def write(self, tx: Tx, run: sa.Row[Any], first: int, last: int) -> None:
        numbers = np.arange(first, last + 1)
        seqs = np.arange(self._written + 1, self._written + 1 + len(numbers))
        self._written += len(numbers)
        topics = self.random.integers(0, _TOPICS, len(numbers))
        bodies = self._bodies(seqs, topics)
        common = node_row(tx.now, self.identity)
        common |= {"tenant_id": run.tenant_id, "source_id": run.source_id}
        named = zip(seqs.tolist(), numbers.tolist(), topics.tolist(), strict=True)
        rows = [common | self._node(*one) for one in named]
        tx.execute(sa.insert(nodes), rows)
        titles = [{"seq": row["seq"], "title": row["title"]} for row in rows]
        written = [title | {"body": body} for title, body in zip(titles, bodies, strict=True)]
        tx.execute(sa.insert(texts), written)
        cut = {row["seq"]: _cut(body) for row, body in zip(rows, bodies, strict=True)}
        store_passages(tx, cut)
        places = [(seq, position) for seq, found in cut.items() for position in range(len(found))]
        each = np.repeat(topics, [len(found) for found in cut.values()])
        vectors = self._vectors(bodies, topics, each)
        made = {"identity": self.identity, "embedded_at": tx.now}
        tx.execute(
            sa.insert(embeddings),
            [
                made | {"seq": seq, "position": position, "vector": vector.tobytes()}
                for (seq, position), vector in zip(places, vectors, strict=True)
            ],
        )

    def _node(self, seq: int, number: int, topic: int) -> dict[str, Any]:
        name = f"{number + 100_000_000}.txt"
        skills = [SKILLS[topic % 5], SKILLS[(topic + seq % 3) % 5]]
        if seq % _RARE_SKILL_EVERY == 0:
            skills.append(SKILLS[-1])
        topic_words = self._vocabulary.words[self._topics[0][topic, :3]]
        return {
            "seq": seq,
            "id": node_id_of(number),
            "external_id": name,
            "url": f"file:///filled/{name}",
            "title": f"{' '.join(topic_words)} {seq}",
            "profile": "resume" if seq % 4 else "job_posting",
            "fields": {
                "primary_skills": skills,
                "seniority": SENIORITIES[seq % len(SENIORITIES)],
                "years_experience_total": seq % 30,
                "recent_job_titles": [f"{topic_words[0]} engineer"],
                "summary": " ".join(self._vocabulary.words[self._topics[0][topic, :40]]),
            },
        }

    def _bodies(self, seqs: Numbers, topics: Numbers) -> list[str]:
        shape = (len(seqs), _WORDS)
        places = self._vocabulary.draw(self.random, shape)
        own, shares = self._topics
        by_topic = self.random.random(shape) < 1 / 3
        drawn = own[topics[:, None], shares.draw(self.random, shape)]
        words = self._vocabulary.words[np.where(by_topic, drawn, places)]
        return [
            " ".join([*line, *_planted(seq)])
            for line, seq in zip(words.tolist(), seqs.tolist(), strict=True)
        ]

    def _vectors(self, bodies: list[str], topics: Numbers, each: Numbers) -> Numbers:
        """A vector for `each` passage, by the topic of its document."""
        if self._bases is None:
            made = self.embedder.embed([body[:_PASSAGE_CHARS] for body in bodies[:_BASES]])
            self._bases = np.frombuffer(b"".join(made), "<f4").reshape(len(made), -1)
            self._base_topics = topics[: len(made)]
        around = np.empty((len(each), self._bases.shape[1]), "<f4")
        for topic in np.unique(each):
            mine = np.flatnonzero(self._base_topics == topic)
            those = np.flatnonzero(each == topic)
            chosen = mine if len(mine) else np.arange(len(self._bases))
            around[those] = self._bases[self.random.choice(chosen, len(those))]
        noise = self.random.normal(size=around.shape) / np.sqrt(around.shape[1])
        vectors = around + _SPREAD * noise
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors, "<f4")


def _cut(body: str) -> list[Passage]:
    return cut_passages(body, _PASSAGE_CHARS, {})


def _planted(seq: int) -> list[str]:
    found = [EVERYWHERE, COMMON_PHRASE]
    found += [word for every, word in zip((5, 6, 7), COMMON, strict=True) if seq % every == 0]
    found += [PHRASE] if seq % 200 == 0 else []
    # Its words apart.
    found += [*reversed(PHRASE.split())] if seq % 20 == 0 else []
    return found + ([RARE] if seq % 1000 == 0 else [])
