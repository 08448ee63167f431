# Every target works on a fresh clone: `setup` makes .venv with the locked dependencies first.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
FIND_BROWSER := { command -v chromium || command -v chromium-browser || command -v google-chrome; } > /dev/null
FIND_PGBOUNCER := { command -v pgbouncer || test -x /usr/sbin/pgbouncer; } > /dev/null
PACKAGES := penstock flows tasks blocks deployments entrypoints
WORKERS ?= 3
# Pytest keeps what it has made of the test modules; without that, collecting takes twice as long.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup screenshots browser pgbouncer demo test test-quick soak check reference bench bench-report clean

setup: $(READY)

# Bytecode is compiled here, so that the first command is as quick as the second.
$(READY): uv.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit('Penstock needs Python 3.11 or newer: make PYTHON=python3.12' if sys.version_info < (3, 11) else 0)"
	@echo "installing the locked dependencies into $(VENV) (a minute or two, once) ..."
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -qq --disable-pip-version-check uv
	$(VENV)/bin/uv sync --frozen --inexact --compile-bytecode --quiet
	$(VENV)/bin/python -m compileall -q $(PACKAGES)
	@touch $(READY)

demo: setup
	$(VENV)/bin/penstock demo

# Pages are tested in a real browser, from the system's packages where we may install them.
browser:
	@$(FIND_BROWSER) || echo "installing Chromium, for the tests of pages (a minute, once) ..."
	@$(FIND_BROWSER) || { apt-get update -qq && apt-get install -y -qq chromium; } > /dev/null 2>&1 || true
	@$(FIND_BROWSER) || echo "NO BROWSER on this machine, and none can be installed: tests of pages are skipped"

# Working behind a pooler is tested with a real one.
pgbouncer:
	@$(FIND_PGBOUNCER) || echo "installing PgBouncer, for the tests behind a pooler (once) ..."
	@$(FIND_PGBOUNCER) || { apt-get update -qq && apt-get install -y -qq pgbouncer; } > /dev/null 2>&1 || true
	@$(FIND_PGBOUNCER) || echo "NO PGBOUNCER on this machine, and none can be installed: tests behind a pooler are skipped"

# The whole suite. More workers than cores: many tests wait for a lease, a poll or a signal.
test: setup browser pgbouncer
	$(VENV)/bin/python -m pytest -n $(WORKERS) --no-loadscope-reorder

# What needs no server, browser or process: after each edit.
test-quick: setup
	$(VENV)/bin/python -m pytest -n 2 --no-loadscope-reorder --quick

# What takes minutes: a minute of killed workers, fuzzing, and the benches at their smallest size.
soak: setup
	$(VENV)/bin/python -m pytest bench/tests

# docs/images/prefect-*.png: Prefect's page of a flow run, from a real server.
SHOWN := prefect-completed-with-errors prefect-log prefect-paused prefect-cached
screenshots: setup browser
	$(VENV)/bin/python -m pytest tests/e2e/test_prefect_for_real.py -k tells_its_outcome
	cp $(SHOWN:%=screenshots/%.png) docs/images/

check: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy $(PACKAGES) examples tests bench
	$(VENV)/bin/lint-imports

# docs/reference/ is written from the code.
reference: setup
	$(VENV)/bin/python -m entrypoints.reference

# About ten minutes on two idle cores: models, the queue without its peers, reads of a smaller store, and
# the pipeline on SQLite in three rounds. Shows the figures and writes nothing.
bench: setup
	$(VENV)/bin/python -m bench.report --short

# All benches, more than an hour: writes docs/performance.json and the tables of docs/performance.md.
bench-report: setup
	$(VENV)/bin/uv sync --frozen --inexact --group bench --quiet
	$(VENV)/bin/python -m bench.report

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
