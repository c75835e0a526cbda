"""Toolrest as an agent of Harbor, for terminal-bench and the other datasets that Harbor runs.

    harbor run -d terminal-bench@2.0 --agent-import-path toolrest_agent:ToolrestAgent \\
        -m openai/gpt-5.5 --ae OPENAI_API_KEY="$OPENAI_API_KEY"

In the task's container it is a batch of one task, so Harbor's logs have the whole store: session,
audit, result. The container is the sandbox; no call is asked about.
"""

import json
import shlex
from typing import Any, override

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import (
    ApiRateLimitError,
    BaseInstalledAgent,
    NetworkConnectionError,
    NonZeroAgentExitCodeError,
    UnknownApiError,
    with_prompt_template,
)
from harbor.agents.options import InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

INSTALL = """
command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh
export PATH="$HOME/.local/bin:$PATH"
uv tool install --python 3.13 {package}
"""
RUN = """
export PATH="$HOME/.local/bin:$PATH"
printf %s {task} > {logs}/task.jsonl
toolrest batch {logs}/task.jsonl --store {logs}/store {settings} >&2
toolrest batch export {logs}/store {logs}/atif >&2
mv {logs}/atif/task.json {logs}/trajectory.json
cat {logs}/store/tasks/task/result.json
"""
ERRORS = {
    "model_rate_limit": ApiRateLimitError,
    "model_unreachable": NetworkConnectionError,
    "model_error": UnknownApiError,
    "usage": NonZeroAgentExitCodeError,
    "internal": NonZeroAgentExitCodeError,
    "killed": NonZeroAgentExitCodeError,
    "oom": NonZeroAgentExitCodeError,
}
"""Failures that say nothing about the model's work; after all others the verifier scores it."""


class ToolrestOptions(InstalledAgentOptions):
    """`--ak NAME=VALUE` of `harbor run`."""

    package: str = Field("toolrest", description="What to install, where it is not there yet.")
    settings: list[str] = Field([], description="KEY=VALUE as for `toolrest -c`.")


class ToolrestAgent(BaseInstalledAgent):
    """Runs `toolrest batch` with one task in the task's container."""

    capabilities = AgentCapabilities(atif=True)
    options_model = ToolrestOptions
    options: ToolrestOptions

    @staticmethod
    @override
    def name() -> str:
        return "toolrest"

    @override
    def get_version_command(self) -> str | None:
        return 'PATH="$HOME/.local/bin:$PATH" toolrest --version'

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.split()[-1]

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        if (await environment.exec(command="command -v toolrest")).return_code == 0:
            return
        await self.ensure_system_dependencies(environment, ("curl",))
        version = f"=={self._version}" if self._version else ""
        package = shlex.quote(self.options.package + version)
        await self.exec_as_agent(environment, command=INSTALL.format(package=package))

    @override
    @with_prompt_template
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        full = {"sandbox": "danger-full-access", "approval": "never"}
        task = {"id": "task", "prompt": instruction, **full}
        settings = list(self.options.settings)
        if self.model_name is not None:
            provider, _, task["model"] = self.model_name.rpartition("/")
            settings += [f"model_provider={provider}"] if provider else []
        command = RUN.format(
            task=shlex.quote(json.dumps(task)),
            logs=shlex.quote(str(self.environment_logs_dir)),
            settings=" ".join(f"-c {shlex.quote(one)}" for one in settings),
        )
        done = await self.exec_as_agent(environment, command=command)
        result: dict[str, Any] = json.loads(done.stdout)
        usage = result["usage"]
        context.n_input_tokens = usage["input_tokens"]
        context.n_cache_tokens = usage["cached_input_tokens"]
        context.n_output_tokens = usage["output_tokens"]
        context.cost_usd = result["cost"]
        context.metadata = {name: result[name] for name in ("failure", "turns", "tool_calls")}
        if result["failure"] in ERRORS:
            raise ERRORS[result["failure"]](f"{result['failure']}: {result.get('error')}")
