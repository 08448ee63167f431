# One image for everything of ours: workers, the HTTP API, the Prefect server, and the set-up.
FROM python:3.11-slim

# Flow runs and the deployments' pull step begin where the project lies.
WORKDIR /penstock

COPY . .
RUN pip install --no-cache-dir -e . "prefect-redis>=0.2.4" \
    && useradd --create-home penstock \
    && mkdir -p /data \
    && chown penstock /data
USER penstock

ENV PENSTOCK_HOME=/data \
    PREFECT_HOME=/data/prefect

CMD ["penstock", "--help"]
