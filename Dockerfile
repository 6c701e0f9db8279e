# syntax=docker/dockerfile:1
# The Holdfast server in a container:
#   docker build -t holdfast-server .
# The web interface is built first, because the server embeds it. Needs BuildKit (the default since Docker 23).

FROM node:22-trixie-slim AS web
WORKDIR /src/web
COPY web/package.json web/package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci --no-audit --no-fund
COPY web ./
RUN npm run build

FROM rust:1.95.0-slim-trixie AS build
# The image has the one toolchain it needs; rust-toolchain.toml asks for lints, too, which would be fetched.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY proto proto
COPY server server
COPY client client
COPY tests tests
COPY xtask xtask
# Only what was built of the web: its sources are not needed, and their changes would not change the server.
COPY --from=web /src/web/dist web/dist
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p holdfast-server -p holdfast --bins \
    && install -D -m 755 -t /out/bin target/release/holdfast-server target/release/holdfast

FROM debian:trixie-slim
# A fixed number, so that the owner of a bind-mounted folder can be set beforehand.
ARG UID=10001
# What the server trusts when it copies to a bucket over HTTPS; the slim image has none.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --system --gid ${UID} holdfast \
    && useradd --system --uid ${UID} --gid ${UID} --home-dir /var/lib/holdfast --shell /usr/sbin/nologin holdfast \
    # A named volume takes over owner and mode of the folder it is mounted on.
    && install -d -m 700 -o ${UID} -g ${UID} /var/lib/holdfast
COPY --from=build /out/bin/ /usr/local/bin/
COPY LICENSE /usr/share/doc/holdfast/LICENSE
USER ${UID}:${UID}
# Inside a container only "any address" can be reached from outside.
ENV HOLDFAST_GRPC=0.0.0.0:7440 \
    HOLDFAST_HTTP=0.0.0.0:7441 \
    HOLDFAST_LOG_FORMAT=json
VOLUME /var/lib/holdfast
EXPOSE 7440 7441
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=2s --retries=3 \
    CMD ["holdfast-server", "health"]
ENTRYPOINT ["holdfast-server"]
CMD ["serve"]
