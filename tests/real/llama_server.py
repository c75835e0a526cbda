"""llama.cpp's own server, `python llama_server.py MODEL OPTIONS`; it ends with its input."""

from __future__ import annotations

import json
import sys

import xllamacpp  # type: ignore[import-untyped]


def main() -> None:
    options = json.loads(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"tiny"}
    params.port = 0
    params.n_ctx = options.get("window", 32768)
    params.n_parallel = options.get("parallel", 1)
    params.n_predict = options.get("predict", -1)
    params.use_jinja = True
    params.warmup = False
    params.n_threads_http = 4
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    params.sampling.temp = 1.0
    params.sampling.seed = options.get("seed", 7)
    params.verbosity = 0
    if "ping" in options:
        params.sse_ping_interval = options["ping"]
    if "key" in options:
        params.api_keys = [options["key"]]
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
