# The image of streams-sidecar; docs/image.md says how to build it and what is in it.
#
# Both bases can be others: the first needs Go and bash, and gets gcc and Maven by apt
# if it has none; the second needs glibc, libstdc++ and libgcc. They are names in
# full, because podman and buildah ask for the registry of a short one.
ARG BUILD_BASE=docker.io/library/golang:1.26.8-bookworm
ARG RUN_BASE=gcr.io/distroless/cc-debian12:nonroot

# On the machine's own architecture whatever the image is for: Go and gcc compile for
# the other one, and no emulator is needed, since the last stage runs nothing.
FROM --platform=$BUILDPLATFORM ${BUILD_BASE} AS library
WORKDIR /src
# Below the caches of RUN --mount, which outlive a build and are in no layer; or
# elsewhere, where the build tool can mount those of the machine (--volume).
ARG GOCACHE=/cache/go-build
ARG GOMODCACHE=/cache/go-mod

# For a network with a certificate authority of its own (secret ca-bundle): Java
# reads no bundle, so it gets one file for each certificate.
RUN --mount=type=secret,id=ca-bundle \
    if [ -s /run/secrets/ca-bundle ]; then \
      cd /usr/local/share/ca-certificates && \
      awk '/BEGIN CERTIFICATE/ { n++ } n { print > "build-" n ".crt" }' /run/secrets/ca-bundle && \
      update-ca-certificates --fresh >/dev/null 2>&1; \
    fi

# RocksDB's library and the packages to fetch it and to link with it, in a stage that
# a change of the sources does not touch. GOPROXY and the settings of Maven
# (secret maven-settings) are for a network with mirrors.
ARG TARGETARCH
ARG GOPROXY
COPY go.mod go.sum ./
COPY scripts/env.sh scripts/setup scripts/
RUN --mount=type=cache,target=/cache --mount=type=secret,id=maven-settings,target=/root/.m2/settings.xml \
    GOARCH=$TARGETARCH scripts/setup go rocksdb

FROM library AS build
ARG TARGETARCH
ARG GOPROXY
ARG GOCACHE=/cache/go-build
ARG GOMODCACHE=/cache/go-mod
COPY . .
ARG VERSION=unknown
ARG SOURCE_DATE_EPOCH
RUN --mount=type=cache,target=/cache \
    GOARCH=$TARGETARCH scripts/image-root /image

FROM ${RUN_BASE}
# scripts/image adds those that change: buildah up to 1.28 takes a LABEL from its cache
# even if an ARG in it has another value.
LABEL org.opencontainers.image.title="streams-sidecar" \
      org.opencontainers.image.description="Watches the RocksDB state of a Kafka Streams application from beside it, and sees it closed cleanly" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /opt/streams-sidecar/
ENV PATH=/opt/streams-sidecar:$PATH
# A number, because Kubernetes cannot tell from a name that it is not root
# (runAsNonRoot). It is the user nonroot of distroless.
USER 65532:65532
ENTRYPOINT ["/opt/streams-sidecar/sidecar"]
