# One process under a numeric user without rights; nothing is written to the root file system.
# The base needs python3 (3.11) with venv. Both stages start from it, so the venv finds the interpreter it was made by.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS builder
WORKDIR /build
RUN python3 -m venv /app
COPY requirements/build.txt requirements/exact-text.txt requirements/
RUN /app/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/exact-text.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
RUN /app/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /app/bin/pip uninstall --yes setuptools pip

FROM ${BASE_IMAGE}
COPY --from=builder /app /app
# Two arenas: freed picture buffers go back to the system instead of staying with the thread that decoded them.
ENV PATH=/app/bin:$PATH \
    MALLOC_ARENA_MAX=2 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD python -c \
  "import urllib.request as web; web.urlopen('http://127.0.0.1:${GATEWAY_SERVER__PORT:-8080}/livez', timeout=2)"
ARG BASE_IMAGE
# Where the source is and which commit: `--build-arg SOURCE=https://... --build-arg REVISION=$(git rev-parse HEAD)`.
ARG SOURCE=""
ARG REVISION=""
LABEL org.opencontainers.image.title="vlm-gateway" \
      org.opencontainers.image.description="Admission control in front of vLLM serving vision-language models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
ENTRYPOINT ["vlm-gateway"]
# By itself it would listen to the container alone. Add keys: docs/tenants.md.
CMD ["serve", "--host", "0.0.0.0"]
