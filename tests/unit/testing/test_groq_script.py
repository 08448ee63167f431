import httpx
import pytest

from penstock.errors import UsageError
from penstock.testing import ChatRequest, GroqServer, Reply, hang

from .conftest import Ask, MakeClient, content_of

pytestmark = pytest.mark.full_suite


def test_a_script_is_used_up_in_order_and_then_the_default_answers(
    server: GroqServer, ask: Ask
) -> None:
    server.script("small", ["one", {"two": 2}])
    answers = [content_of(ask("Pumps")) for _ in range(3)]
    assert answers == ["one", '{"two": 2}', "This is about Pumps."]


def test_a_second_script_follows_the_first(server: GroqServer, ask: Ask) -> None:
    server.script("small", ["one"])
    server.script("small", ["two"])
    assert [content_of(ask()) for _ in range(2)] == ["one", "two"]


def test_always_answers_after_the_script_and_until_the_next_always(
    server: GroqServer, ask: Ask
) -> None:
    server.script("small", ["first"])
    server.always("small", "then")
    assert [content_of(ask()) for _ in range(3)] == ["first", "then", "then"]
    server.always("small", "now")
    assert content_of(ask()) == "now"


def test_a_rule_for_one_model_leaves_the_others_alone(server: GroqServer, ask: Ask) -> None:
    server.always("small", "small")
    server.always(None, "any")
    assert [content_of(ask(model=model)) for model in ("small", "large")] == ["small", "any"]


def test_a_condition_on_the_text_goes_before_rules_without(server: GroqServer, ask: Ask) -> None:
    server.script("small", ["Berlin"], when="Berlin")
    server.always("small", "long", when=lambda request: len(request.text) > 20)
    server.always("small", "else")
    texts = ("Pumps in Berlin", "Pumps in Berlin", "Pumps", "Pumps " * 10)
    assert [content_of(ask(text)) for text in texts] == ["Berlin", "else", "else", "long"]


def test_requests_are_kept_with_what_was_answered(server: GroqServer, ask: Ask) -> None:
    server.script("small", [Reply("x")])
    ask("Hello", temperature=0.5)
    (request,) = server.requests
    assert isinstance(request, ChatRequest)
    assert (request.model, request.text, request.status) == ("small", "Hello", 200)
    assert request.messages[0]["role"] == "user"
    assert request.body["temperature"] == 0.5
    assert request.headers["authorization"] == "Bearer key"
    assert "Bearer" not in repr(request)


def test_requests_are_counted_by_model_and_status(server: GroqServer, ask: Ask) -> None:
    for model in ("small", "small", "large"):
        ask(model=model)
    assert server.count() == server.count(status=200) == 3
    assert server.count("small") == server.count("small", 200) == 2
    assert server.count("small", 429) == server.count("none") == 0
    assert [request.at for request in server.requests] == sorted(r.at for r in server.requests)


def test_reset_forgets_requests_rules_and_limits(server: GroqServer, ask: Ask) -> None:
    server.always("small", hang())
    server.limit_requests(per_second=0.001)
    server.limit_tokens(per_minute=1)
    server.reset()
    assert content_of(ask("Pumps")) == content_of(ask("Pumps")) == "This is about Pumps."
    server.reset()
    assert server.requests == []
    assert server.peak_concurrency == 0


def test_models_are_listed_without_the_retired(make_client: MakeClient) -> None:
    with GroqServer(retired=["openai/gpt-oss-20b"]) as server:
        server.always("small", "x")
        listed = make_client(server).models.list().data
    assert [model.id for model in listed] == ["openai/gpt-oss-120b", "small"]


def test_openai_compatible_clients_find_their_address(server: GroqServer) -> None:
    question = {"model": "m", "messages": [{"role": "user", "content": "Pumps"}]}
    for base in (server.openai_url, f"{server.base_url}/v1"):
        answer = httpx.post(f"{base}/chat/completions", json=question).json()
        assert answer["choices"][0]["message"]["content"] == "This is about Pumps."
    assert server.openai_url.endswith("/v1")


def test_an_unknown_address_is_not_found(server: GroqServer) -> None:
    answer = httpx.get(f"{server.base_url}/v1/pumps")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "m"}'])
def test_a_request_that_says_too_little_is_refused(server: GroqServer, body: bytes) -> None:
    answer = httpx.post(f"{server.openai_url}/chat/completions", content=body)
    assert answer.status_code == 400
    assert server.count(status=400) == 1


def test_a_server_that_is_not_running_says_how_to_start_it() -> None:
    server = GroqServer()
    with pytest.raises(UsageError, match="use `with`, or call start"):
        _ = server.base_url
    with server, pytest.raises(UsageError, match="running already"):
        server.start()
    server.close()
