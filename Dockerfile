# One image for everything of ours: workers, the HTTP API, the Prefect server, and the set-up.
FROM python:3.11-slim

# Flow runs and the deployments' pull step begin where the project lies.
WORKDIR /penstock

ENV UV_COMPILE_BYTECODE=1 \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir uv==0.13.7

# What was tested is what is installed: a lock that does not fit pyproject.toml ends the build.
# Dependencies come before the code, so that a change of the code alone builds quickly.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --extra container --no-install-project
COPY . .
RUN uv sync --locked --no-dev --extra container \
    && useradd --create-home penstock \
    && install -d -m 700 -o penstock /data
USER penstock

ENV PATH=/penstock/.venv/bin:$PATH \
    PENSTOCK_HOME=/data \
    PREFECT_HOME=/data/prefect

CMD ["penstock", "--help"]
