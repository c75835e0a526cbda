# Toolrest in a container: `make release`, then `podman build -t toolrest .`, then in a project
#   podman run -it --rm --userns=keep-id -v "$PWD:/work" -e OPENAI_API_KEY toolrest
#   docker run -it --rm --user "$(id -u)" -e HOME=/tmp -v "$PWD:/work" -e OPENAI_API_KEY toolrest
# Commands are confined by bubblewrap where the container may make user namespaces
# (--security-opt seccomp=unconfined --security-opt systempaths=unconfined), else by Landlock.
ARG BASE=docker.io/library/python:3.13-slim
FROM ${BASE}
COPY dist/toolrest-*-py3-none-any.whl /tmp/
RUN python3 -m venv /opt/toolrest \
 && wheel="$(ls /tmp/toolrest-*-py3-none-any.whl)" \
 && /opt/toolrest/bin/pip install --no-cache-dir "${wheel}[all]" \
 && rm /tmp/toolrest-*.whl \
 && ln -s /opt/toolrest/bin/toolrest /usr/local/bin/toolrest \
 && useradd --create-home toolrest \
 && install -d -o toolrest -g toolrest /work
USER toolrest
WORKDIR /work
ENTRYPOINT ["toolrest"]
