# syntax=docker/dockerfile:1
# Images of the gateway, `specclient serve`:
#   docker build --tag specclient:slim .                       providers alone, without the local engine
#   docker build --target engine --tag specclient:engine .     with PyTorch and the local engine
ARG PYTHON=3.11

# The wheel of this folder, and an empty environment.
FROM python:${PYTHON}-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY specclient specclient
COPY specclient-stubs specclient-stubs
COPY local local
COPY cli cli
RUN pip wheel --no-deps --wheel-dir wheels . && python -m venv /opt/specclient
ENV PATH=/opt/specclient/bin:$PATH

# The environment of each image, with the versions that the tests run with.
FROM build AS build-slim
ARG EXTRAS=server,realtime,postgres,redis,bedrock,vertex,templates
RUN pip install --constraint constraints.txt "$(echo wheels/*.whl)[${EXTRAS}]"

# PIP_EXTRA_INDEX_URL may name the index of PyTorch's builds for the CPU alone, which are smaller by gigabytes.
FROM build AS build-engine
ARG EXTRAS=server,realtime,postgres,redis,bedrock,vertex,templates,local,quant
ARG PIP_EXTRA_INDEX_URL
RUN pip install --constraint constraints.txt "$(echo wheels/*.whl)[${EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm AS runtime
# A number, because Kubernetes cannot tell from a name whether a user is root.
RUN groupadd --gid 10001 specclient \
    && useradd --uid 10001 --gid 10001 --create-home --home-dir /var/lib/specclient --shell /usr/sbin/nologin specclient
ENV PATH=/opt/specclient/bin:$PATH HOME=/var/lib/specclient PYTHONUNBUFFERED=1 SPECCLIENT_LOG_FORMAT=json
WORKDIR /var/lib/specclient
EXPOSE 8400
# /health needs no key. The image has no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8400, timeout=4); c.request('GET', '/health'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["specclient"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8400"]

FROM runtime AS engine
# The engine compiles its passes in C when it first loads a model, for the processor that it runs on. Debian's
# archive keeps no old versions, so that a pinned one would break the build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-engine /opt/specclient /opt/specclient
USER 10001:10001

# The last stage is the one that is built if none is named.
FROM runtime AS slim
COPY --from=build-slim /opt/specclient /opt/specclient
USER 10001:10001
