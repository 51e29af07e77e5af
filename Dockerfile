# sfapp with the app, streams, alerts and object storage.
#     docker build -t sfapp .
#     docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8642:8642 -e SFAPP_TOKEN -v "$PWD/packets:/packets:ro" sfapp
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python -m venv /opt/sfapp \
    && /opt/sfapp/bin/pip install --no-cache-dir --no-compile -c /source/constraints.txt '/source[app,alerts,s3,stream]'

FROM python:3.12-slim
COPY --from=build /opt/sfapp /opt/sfapp
COPY assets/container/healthcheck.py /opt/sfapp/healthcheck.py
# No root, and nothing is written outside /tmp and the folders that are mounted.
USER 65532:65532
ENV PATH=/opt/sfapp/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
EXPOSE 8642 29765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "/opt/sfapp/healthcheck.py"]
ENTRYPOINT ["sfapp"]
CMD ["serve", "/packets", "--memory", "--host", "0.0.0.0", "--no-browser"]
