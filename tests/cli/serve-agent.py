#!/usr/bin/env python3
"""serve-agent.py URL [KEY]: an agent of the package openai-agents calls a tool and answers, over both OpenAI
APIs.

Exit status 77: the package is missing."""
import sys
from typing import Literal

try:
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
except ImportError:
    sys.exit(77)

set_tracing_disabled(True)
called = []


@function_tool
def get_weather(city: Literal["Paris", "Oslo"]) -> str:
    """The weather of a city."""
    called.append(city)
    return "sunny, 21 degrees"


client = AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key=(sys.argv + ["none"])[2], timeout=300)
for n, kind in enumerate((OpenAIChatCompletionsModel, OpenAIResponsesModel), 1):
    agent = Agent(name="helper", instructions="Use the tool, then answer.", tools=[get_weather], model=kind(model="tiny", openai_client=client),
                  model_settings=ModelSettings(tool_choice="required", temperature=0, max_tokens=80))
    r = Runner.run_sync(agent, "What is the weather in Paris?", max_turns=5)
    assert len(called) == n and r.final_output, (called, r.final_output)
    assert [type(i).__name__ for i in r.new_items] == ["ToolCallItem", "ToolCallOutputItem", "MessageOutputItem"]
print("well")
# SPDX-License-Identifier: Apache-2.0
