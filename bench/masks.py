"""ms per sandboxed command in a workspace with many `.env` files, each of which is masked.

In turns with a workspace that has none, so that both see the same load.

    python bench/masks.py [FILES [CALLS]]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time

FILES = int(sys.argv[1]) if len(sys.argv) > 1 else 500
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 40
TARGET = 30


async def main() -> None:
    from toolrest import Toolrest

    with tempfile.TemporaryDirectory() as base:
        os.environ["TOOLREST_HOME"] = os.path.join(base, "home")
        shapes = {
            "no .env": 0,
            f"{FILES} .env, a folder each": 1,
            f"{FILES} .env, ten a folder": 10,
        }
        sessions: dict[str, Toolrest] = {}
        for number, (name, each) in enumerate(shapes.items()):
            place = os.path.join(base, str(number))
            os.mkdir(place)
            for file in range(FILES if each else 0):
                folder = os.path.join(place, f"package{file // each}")
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, f".env.{file % each}"), "w") as stream:
                    stream.write("KEY=value\n")
            settings = {"checkpoints": {"enabled": False}}
            sessions[name] = await Toolrest(
                place, sandbox_mode="workspace-write", model="bench", settings=settings
            ).__aenter__()
        seen: dict[str, list[float]] = {name: [] for name in shapes}
        for call in range(CALLS + 1):
            for name, rest in sessions.items():
                await asyncio.sleep(0.05)
                start = time.perf_counter()
                output = await rest.call("exec_command", {"cmd": f"set {call}", "login": False})
                seen[name].append((time.perf_counter() - start) * 1000)
                assert "exited with code 0" in output.text, output.text
        for rest in sessions.values():
            await rest.__aexit__(None, None, None)
    print(f"ms per command, {CALLS} calls each, in turns")
    plain = statistics.median(seen["no .env"][1:])
    for name, times in seen.items():
        median = statistics.median(times[1:])
        words = f"+{median - plain:.1f} (target +{TARGET})" if name != "no .env" else ""
        print(f"  {name:<28} {median:7.1f}   min {min(times[1:]):7.1f}   {words}")


if __name__ == "__main__":
    asyncio.run(main())
