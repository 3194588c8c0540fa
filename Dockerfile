# Images with the one program: no toolkit, no Python, no compiler.
#   scripts/image.sh cpu|cuda       or: docker build --target cpu .   docker build --target cuda .
# A release gives the programs that it signed instead of building them: --build-context build-cpu=DIR (or build-cuda), in
# which they are out/amd64/trainer and out/arm64/trainer. The last stages run nothing, so one machine builds both platforms.
ARG GO_IMAGE=docker.io/library/golang:1.26-bookworm@sha256:551752d3ad9de9923190bf5280500617ed8fee287ffb4b0220e770ef89346258
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241

FROM --platform=$BUILDPLATFORM $GO_IMAGE AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .

# What an image has besides the program: certificates for downloads, a user, folders that it owns.
FROM --platform=$BUILDPLATFORM $GO_IMAGE AS files
RUN mkdir -p /files/etc/ssl/certs /files/tmp /files/work /files/cache/huggingface \
    && chmod 1777 /files/tmp \
    && chown -R 65532:65532 /files/work /files/cache \
    && cp /etc/ssl/certs/ca-certificates.crt /files/etc/ssl/certs/ \
    && (cat /etc/passwd; echo 'trainer:x:65532:65532::/work:/usr/sbin/nologin') >/files/etc/passwd \
    && (cat /etc/group; echo 'trainer:x:65532:') >/files/etc/group

FROM source AS build-cpu
ARG TARGETARCH
ARG VERSION= COMMIT=
RUN --mount=type=cache,target=/root/.cache CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
        -ldflags="-s -w -X main.release=$VERSION -X main.revision=$COMMIT" -o /out/$TARGETARCH/trainer ./cmd/trainer

# The kernels are compiled without a GPU by NVIDIA's pinned compiler from its Python packages, which stays in this stage.
# A cache mount keeps them, and Go's objects, for the next build on this machine; each is found by the hash of what made it.
FROM source AS build-cuda
ARG TARGETARCH
ARG VERSION= COMMIT=
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip gcc libc6-dev
RUN --mount=type=cache,target=/root/.cache eval "$(scripts/cuda.sh)" && python3 scripts/kernels.py && GOARCH=$TARGETARCH go build -tags gpu -trimpath -buildvcs=false \
        -ldflags="-s -w -X main.release=$VERSION -X main.revision=$COMMIT" -o /out/$TARGETARCH/trainer ./cmd/trainer

# The driver's libraries come from the host (NVIDIA Container Toolkit). cuBLASLt is optional: mount it and name it by TRAINER_CUBLASLT.
FROM $BASE_IMAGE AS cuda
ARG TARGETARCH
COPY --from=files /files /
COPY --from=build-cuda /out/$TARGETARCH/trainer /usr/local/bin/trainer
COPY LICENSE NOTICE THIRD_PARTY_NOTICES /usr/share/doc/tierlora/
ENV HOME=/work HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
LABEL org.opencontainers.image.title="tierlora (CPU and NVIDIA GPUs)" \
      org.opencontainers.image.description="LoRA and QLoRA fine-tuning of language models in one program" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /work
VOLUME ["/work", "/cache"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/trainer"]
CMD ["--help"]

FROM scratch AS cpu
ARG TARGETARCH
COPY --from=files /files /
COPY --from=build-cpu /out/$TARGETARCH/trainer /usr/local/bin/trainer
COPY LICENSE NOTICE THIRD_PARTY_NOTICES /usr/share/doc/tierlora/
ENV PATH=/usr/local/bin HOME=/work HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache
LABEL org.opencontainers.image.title="tierlora (CPU)" \
      org.opencontainers.image.description="LoRA and QLoRA fine-tuning of language models in one program" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /work
VOLUME ["/work", "/cache"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/trainer"]
CMD ["--help"]
