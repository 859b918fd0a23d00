# Two stages: wheels are installed (and the package compiled) where pip is, then only the result is kept.
# The base by its digest, and the same commit, make the same image: see "Images" in docs/operating.md.
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
# Byte code then bears the hash of its source and not the moment: two builds of one commit are the same.
ARG SOURCE_DATE_EPOCH=0
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PYTHONHASHSEED=0
RUN python -m venv /opt/tutti
WORKDIR /build
COPY requirements.lock .
# Wheels only: nothing is compiled here, so no compiler is needed, and every file is one that the lock names.
RUN /opt/tutti/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
COPY webhook/ /app/webhook/
COPY certs/ /app/certs/
# What `tutti demo` applies.
COPY examples/teams/ /app/examples/teams/
COPY manifests/base/registrations.yaml /app/manifests/base/
# A read-only root leaves no place for byte code later, and a checkout may have been made for its owner's eyes alone.
RUN python -m compileall -q -j 0 /app \
    && chmod -R u=rwX,go=rX /app \
    && /opt/tutti/bin/python -m pip uninstall -q -y setuptools pip \
    && printf '#!/bin/sh\nexec /opt/tutti/bin/python -m webhook "$@"\n' > /opt/tutti/bin/tutti \
    && chmod 0755 /opt/tutti/bin/tutti

FROM ${BASE}
LABEL org.opencontainers.image.title="tutti" \
      org.opencontainers.image.description="Gang admission for Kubernetes: a gang of pods starts whole or not at all." \
      org.opencontainers.image.licenses="Apache-2.0"
# The base's own installer is of no use at run time and only widens what can go wrong.
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip*
COPY --from=build /opt/tutti /opt/tutti
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/opt/tutti/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1
USER 65532:65532
EXPOSE 9443 9444 8080
ENTRYPOINT ["tutti"]
