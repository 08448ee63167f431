# One image for everything of ours: workers, flow runs, the HTTP API, the Prefect server, the set-up.
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
RUN uv sync --locked --no-dev --extra container --extra docker --extra kubernetes --no-install-project

RUN useradd --create-home penstock \
    && install -d -m 700 -o penstock /data

# Only what .dockerignore lets through. It stays root's: a flow run cannot change the code.
COPY . .
RUN uv sync --locked --no-dev --extra container --extra docker --extra kubernetes

USER penstock
ENV PATH=/penstock/.venv/bin:$PATH \
    PENSTOCK_HOME=/data \
    PREFECT_HOME=/data/prefect

# Asks the server that the container runs, if it runs one; a flow run ends with its container.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "entrypoints.container_health"]

CMD ["penstock", "--help"]
