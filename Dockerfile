# The three images that charts/trireme installs, one target each:
#
#   docker build --target gang-scheduler --tag ghcr.io/trireme-dev/gang-scheduler:0.1.0 .

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# What kueue_build_info tells.
ARG TRIREME_GIT_COMMIT
ARG TRIREME_BUILD_DATE
RUN cargo build --release --locked -p admission-controller -p gang-scheduler -p node-agent

# With a C library: node-agent loads NVML at run time.
FROM gcr.io/distroless/cc-debian12 AS base

FROM base AS admission-controller
COPY --from=build /source/target/release/admission-controller /
ENTRYPOINT ["/admission-controller"]

FROM base AS gang-scheduler
COPY --from=build /source/target/release/gang-scheduler /
ENTRYPOINT ["/gang-scheduler"]

FROM base AS node-agent
COPY --from=build /source/target/release/node-agent /
ENTRYPOINT ["/node-agent"]
