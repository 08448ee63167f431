"""The pages as a browser without scripts sees them: cookies, links, forms."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from fastapi import FastAPI
from fastapi.testclient import TestClient
from selectolax.lexbor import LexborHTMLParser

from entrypoints.dashboard.app import add_dashboard
from penstock.store.database import Database
from penstock.store.schema import metadata
from tests.contract.api.routes import routes_of
from tests.contract.api.service import Service
from tests.contract.api.tokens import SECRET, make_token
from tests.dashboard.furnishing import Furnished
from tests.factories import read_rows

HOST = "http://127.0.0.1"


@dataclass(frozen=True)
class Shown:
    """A page that was answered."""

    answer: Any

    @property
    def html(self) -> str:
        return str(self.answer.text)

    @property
    def tree(self) -> LexborHTMLParser:
        return LexborHTMLParser(self.html)

    @property
    def words(self) -> str:
        """What a person reads."""
        body = self.tree.body
        return " ".join(body.text(separator=" ").split()) if body else ""

    @property
    def status(self) -> int:
        return int(self.answer.status_code)

    def texts(self, selector: str) -> list[str]:
        return [" ".join(one.text().split()) for one in self.tree.css(selector)]

    def attributes(self, selector: str, name: str) -> list[str]:
        return [str(one.attributes.get(name) or "") for one in self.tree.css(selector)]

    def links(self) -> list[str]:
        """Where its links lead on this server, without what stands behind the #."""
        found = self.attributes("a[href]", "href")
        here = [urljoin(str(self.answer.url), one).partition("#")[0] for one in found]
        return [one for one in here if urlsplit(one).netloc == urlsplit(HOST).netloc]

    def posts(self) -> list[str]:
        """Where its forms that change something go."""
        return self.attributes("form[method=post]", "action")


class Pages(Service):
    """A service with the dashboard, and somebody who looks at it."""

    def __init__(self, database: Database, home: Path, **settings: Any) -> None:
        super().__init__(database, home, **settings)
        add_dashboard(self.web)
        self.http = TestClient(
            self.web, base_url=HOST, follow_redirects=False, raise_server_exceptions=False
        )

    @property
    def pages_app(self) -> FastAPI:
        """The application behind the door of the API's."""
        (door,) = [one for one in self.web.user_middleware if "pages" in one.kwargs]
        found: Any = door.kwargs["pages"]
        while not isinstance(found, FastAPI):
            found = found._app
        return found

    def routes(self, method: str) -> set[str]:
        """Paths of the pages for this method."""
        named = [one.split(" ", 1) for one in routes_of(self.pages_app)]
        return {path for verb, path in named if verb == method}

    def look(self, path: str, status: int = 200, **options: Any) -> Shown:
        answer = self.http.get(path, **options)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-2000:])
        return Shown(answer)

    def csrf(self) -> str:
        """What this browser's forms have to repeat."""
        (value,) = self.look("/ui/login").attributes("form input[name=csrf]", "value")
        return value

    def send(self, path: str, status: int = 303, **fields: str) -> Shown:
        """Fill in a form of a page and send it."""
        return self.send_raw(path, {"csrf": self.csrf(), **fields}, status)

    def send_raw(self, path: str, fields: dict[str, str], status: int, **headers: str) -> Shown:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.http.post(path, data=fields, headers=named)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-2000:])
        return Shown(answer)

    def sign_in(self, tenant: str = "acme", *scopes: str, token: str | None = None) -> Shown:
        given = token or (make_token(tenant, list(scopes)) if scopes else make_token(tenant))
        return self.send("/ui/login", token=given)

    def use_tenant(self, tenant: str) -> None:
        self.send("/ui/tenant", tenant=tenant)

    def everything(self) -> list[tuple[Any, ...]]:
        """All that is stored: equal before and after means that nothing was changed."""
        return read_rows(self.database, *metadata.sorted_tables)


class MakePages(Protocol):
    """Builds pages that end with the test."""

    def __call__(self, **settings: Any) -> Pages: ...


@dataclass(frozen=True)
class Exhibit:
    """Pages of two tenants, to be looked at only."""

    pages: Pages
    """Without tokens, of tenant acme."""
    guarded: Pages
    acme: Furnished
    globex: Furnished


GUARDED: dict[str, Any] = {"api_jwt_secret": SECRET}
