"""Tasks in flows of a user's own, on a real Prefect server."""

import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, unmapped
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State
from pydantic import SecretStr

from blocks import GroqModels
from examples.similar_documents import similar_documents
from penstock.app import open_app
from penstock.documents import Embedding, ExtractedText, Extraction, ExtractionSkipped
from penstock.errors import DocumentFault, ErrorClass, StagePaused
from penstock.runs.costs import tenant_spending
from penstock.testing import GroqServer, Reply
from penstock.testing.script import invalid_api_key
from tasks.parts import Blocks, close_shared_apps
from tasks.steps import crawl, embed, extract_fields, extract_text
from tests.e2e.test_howto import blocks
from tests.integration.test_flows import PROSE, write_documents
from tests.integration.test_models_flows import log_of
from tests.simulator import Site
from tests.simulator.trouble import Status
from tests.together import wait_until

KEY = "gsk_very-secret-key"
MODEL = "openai/gpt-oss-20b"


@pytest.fixture(autouse=True)
def _parts_of_this_test(prefect: object, home: Path, tmp_path: Path) -> Iterator[None]:
    """Results in a folder of this test: nothing is reused from another one."""
    del prefect, home
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings

    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: tmp_path / "results"}):
        yield
    close_shared_apps()


def end(run: Any, *given: Any, **options: Any) -> State[Any]:
    """The state a flow ends in."""
    state: State[Any] = run(*given, **options, return_state=True)
    return state


def states_of(state: State[Any], tasks: int) -> dict[str, Counter[str | None]]:
    """How the task runs of a flow run ended, by the name of the task, when all have."""
    of_this = FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id]))
    found: list[Any] = []

    def have_ended() -> bool:
        with get_client(sync_client=True) as client:
            found[:] = client.read_task_runs(flow_run_filter=of_this)
        return len(found) == tasks and all(run.state and run.state.is_final() for run in found)

    wait_until(have_ended, seconds=60)
    states: dict[str, Counter[str | None]] = {}
    for run in found:
        name = run.name.partition(",")[0].partition("-")[0].replace("_", " ")
        states.setdefault(name, Counter())[run.state_name] += 1
    return states


def test_the_example_reuses_every_document_that_has_not_changed(tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris", "chandra")

    first = end(similar_documents, str(folder))
    (folder / "boris.txt").write_text("Bread. " + PROSE.format(name="Bogdan"))
    second = end(similar_documents, str(folder))

    assert [row["similarity"] > 0.5 for row in first.result()] == [True] * 3
    all_new = Counter(Completed=3)
    assert states_of(first, 10) == {
        "crawl": Counter(Completed=1),
        "extract text": all_new,
        "extract fields": all_new,
        "embed": all_new,
    }
    two_hits = Counter(Cached=2, Completed=1)
    assert states_of(second, 10) == {
        "crawl": Counter(Completed=1),
        "extract text": two_hits,
        "extract fields": two_hits,
        "embed": two_hits,
    }


def test_the_flow_of_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_documents(tmp_path / "letters", "agnes", "boris")
    monkeypatch.chdir(tmp_path)
    # Prefect looks for the source of a flow.
    page = tmp_path / "page.py"
    page.write_text(blocks("docs/howto/tasks.md")[0])

    runpy.run_path(str(page))

    assert capsys.readouterr().out.count("'summary':") == 2


def test_a_document_that_cannot_be_read_fails_alone_and_the_example_goes_on(
    tmp_path: Path,
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 broken")

    state = end(similar_documents, str(folder))

    assert len(state.result()) == 1
    assert states_of(state, 8)["extract text"] == Counter(Completed=2, Failed=1)


@flow
def read_all(*documents: Any) -> list[ExtractedText]:
    return [extract_text(document) for document in documents]


def test_a_document_is_a_path_an_address_or_bytes(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOW_PRIVATE_ADDRESSES", "true")
    monkeypatch.setenv("PENSTOCK_CRAWL_DELAY_SECONDS", "0")
    path = write_documents(tmp_path / "docs", "agnes") / "agnes.txt"
    address = site.page("/mill", "Miller", "Grinds corn for the town, and mends the wheel.")
    given = (path, str(path), PROSE.format(name="Boris").encode(), address)

    first = end(read_all, *given)
    second = end(read_all, *given)

    texts = [text.text for text in first.result()]
    assert ["Agnes" in texts[0], "Boris" in texts[2], "corn" in texts[3]] == [True] * 3
    assert first.result() == second.result()
    # The page is fetched again; what was read from the same bytes is reused.
    assert states_of(second, 5) == {"extract text": Counter(Cached=4, Completed=1)}


@flow
def read_with(
    text: str, profile: str | None = None, tenant: str = "default", blocks: Blocks = None
) -> Extraction | ExtractionSkipped:
    return extract_fields(text, profile, tenant=tenant, blocks=blocks)


def answer_of(state: State[Any]) -> str:
    found = state.result()
    assert isinstance(found, Extraction)
    return found.model


def test_fields_are_asked_again_for_another_version_profile_tenant_or_extractor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PROSE.format(name="Agnes")

    def state(**options: Any) -> str | None:
        return states_of(end(read_with, text, **options), 1)["extract fields"].most_common()[0][0]

    assert state() == "Completed"
    assert state() == "Cached"
    assert state(profile="resume") == "Completed"
    assert state(tenant="acme") == "Completed"
    monkeypatch.setenv("EXTRACTION_VERSION", "2.0.0")
    assert state() == "Completed"


def test_named_blocks_say_which_models_answer_and_what_they_cost_is_recorded() -> None:
    text = PROSE.format(name="Agnes")
    with GroqServer(api_key=KEY) as server:
        saved = GroqModels(api_key=SecretStr(KEY), base_url=server.base_url)
        saved.save("of-own-flows", overwrite=True)
        block = "penstock-groq-models/of-own-flows"
        by_rules = end(read_with, text)
        by_model = end(read_with, text, blocks=block)
        again = end(read_with, text, blocks=[block])

    assert [answer_of(one) for one in (by_rules, by_model, again)] == ["rules", MODEL, MODEL]
    assert server.count() == 1
    with open_app() as app, app.database.read() as tx:
        assert tenant_spending(tx, "default").llm_calls == 1


@flow
def map_all(texts: list[str], blocks: list[str]) -> list[Any]:
    fields = extract_fields.map(texts, profile="document", blocks=unmapped(blocks))
    return fields.result()


def test_a_refused_key_fails_the_task_at_once_and_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with GroqServer(api_key=KEY) as server:
        server.always(None, invalid_api_key())
        monkeypatch.setenv("EXTRACTION_BASE_URL", server.base_url)
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        with pytest.raises(StagePaused, match="GROQ_API_KEY"):
            map_all([PROSE.format(name="Agnes")], [])
        server.always(None, Reply())
        [found] = map_all([PROSE.format(name="Agnes")], [])
    assert found.model == MODEL


@flow
def embed_all(texts: list[str]) -> tuple[list[Embedding], list[list[Embedding]]]:
    return embed(texts), embed.map(texts).result()


def test_a_batch_and_a_map_give_the_same_vectors() -> None:
    together, apart = embed_all(["corn and wheat", "a wheel in the river"])

    assert [one.identity for one in together] == ["wordllama/l2_supercat@256"] * 2
    assert [[one] for one in together] == apart
    assert sum(value**2 for value in together[0].values) == pytest.approx(1.0, abs=1e-5)


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(DocumentFault, match="is empty") as refused:
        embed_all([""])
    assert refused.value.kind is ErrorClass.EMPTY


@flow
def collect(source: str) -> list[ExtractedText]:
    return extract_text.map(crawl(source)).result()


def test_a_site_is_crawled_and_what_cannot_be_fetched_is_left_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ALLOW_PRIVATE_ADDRESSES", "true")
    monkeypatch.setenv("PENSTOCK_CRAWL_DELAY_SECONDS", "0")
    site.page("/mill", "Miller")
    site.page("/gate", "Gatekeeper")
    site.page("/gone", "Ferryman")
    site.trouble("/gone", Status(410))

    state = end(collect, site.url)

    assert {text.title for text in state.result()} == {"Miller", "Gatekeeper"}
    flow_run_id = UUID(str(state.state_details.flow_run_id))
    wait_until(lambda: "1 left out (" in log_of(flow_run_id), seconds=30)
    assert "/gone" in log_of(flow_run_id)
