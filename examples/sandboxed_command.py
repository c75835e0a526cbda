"""A command in the OS sandbox: it may write the folder and reach one host, nothing else."""

import asyncio

from toolrest import Sandbox


async def main() -> None:
    async with Sandbox(".", network=["pypi.org"]) as box:
        result = await box.run("id -u; touch made-here; touch /etc/not-here")
        print(result.exit_code, result.stdout, result.blocked)


asyncio.run(main())
