"""How often the embedded default model calls the right action and gives the right answer.

    python bench/embedded_accuracy.py [--path model.gguf]

Asks the default agent ten questions of arithmetic, and an agent with three actions ten questions that need one of them. Sampling is greedy,
so a run on the same build of llama.cpp gives the same table. Exits with 1 if it falls short of what the README promises.

None of these questions, and none of their numbers, occurs in the examples that the model is shown.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any

from attrs import define

from lagent import registry
from lagent.actions import BaseAction, Calculator
from lagent.schema import AgentMessage, tool_calls_of

ARITHMETIC = {
    "37*412": 15244,
    "123+456": 579,
    "1000-387": 613,
    "144/12": 12,
    "(8+4)/3": 4,
    "2**10": 1024,
    "15% of 240": 36,
    "99*99": 9801,
    "7*8*9": 504,
    "3.5*4": 14,
}
CHOICES = {
    "What is 64 minus 29?": "Calculator",
    "How much is 18 * 7?": "Calculator",
    "Calculate 950 / 38.": "Calculator",
    "What is 35% of 540?": "Calculator",
    "What is the weather like in Athens today?": "Weather",
    "Is it cold in Stockholm?": "Weather",
    "Will I need sunglasses in Nairobi?": "Weather",
    "How many kilometers are 40 miles?": "Convert",
    "Convert 90 ounces to kilograms.": "Convert",
    "What is 24 feet in meters?": "Convert",
}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
RIGHT_CALLS, RIGHT_ANSWERS, RIGHT_CHOICES = 8, 7, 7
"""What is promised, of ten."""


class Weather(BaseAction):
    """Tell the weather in a city."""

    examples = (
        {
            "question": "What is the weather in Paris?",
            "arguments": {"city": "Paris"},
            "result": "rain, 17 degrees",
            "answer": "It is raining in Paris, at 17 degrees.",
        },
        {
            "question": "How cold is it in Moscow?",
            "arguments": {"city": "Moscow"},
            "result": "snow, -5 degrees",
            "answer": "It is -5 degrees in Moscow, with snow.",
        },
        {
            "question": "Do I need an umbrella in Rome today?",
            "arguments": {"city": "Rome"},
            "result": "sunny, 28 degrees",
            "answer": "No, it is sunny in Rome, at 28 degrees.",
        },
    )
    table = {"Athens": "sunny, 33 degrees", "Stockholm": "rain, 9 degrees", "Nairobi": "cloudy, 22 degrees"}  # noqa: RUF012

    def run(self, city: str) -> str:
        """Tell the weather in a city.

        Args:
            city: the name of the city.
        """
        return self.table.get(city, f"no weather is known for {city}")


class Convert(BaseAction):
    """Convert a quantity to another unit."""

    examples = (
        {
            "question": "How many meters are 6 miles?",
            "arguments": {"value": 6, "from_unit": "miles", "to_unit": "meters"},
            "result": "9656.06",
            "answer": "6 miles are 9656.06 meters.",
        },
        {
            "question": "Convert 11 pounds to grams.",
            "arguments": {"value": 11, "from_unit": "pounds", "to_unit": "grams"},
            "result": "4989.52",
            "answer": "11 pounds are 4989.52 grams.",
        },
        {
            "question": "What is 5 inches in centimeters?",
            "arguments": {"value": 5, "from_unit": "inches", "to_unit": "centimeters"},
            "result": "12.7",
            "answer": "5 inches are 12.7 centimeters.",
        },
    )
    units = {  # noqa: RUF012
        **{"meters": 1.0, "kilometers": 1000.0, "centimeters": 0.01, "miles": 1609.344, "feet": 0.3048, "inches": 0.0254},
        **{"kilograms": 1.0, "grams": 0.001, "pounds": 0.45359237, "ounces": 0.028349523},
    }

    def run(self, value: float, from_unit: str, to_unit: str) -> str:
        """Convert a quantity to another unit.

        Args:
            value: how many of ``from_unit``.
            from_unit: the unit that the quantity has.
            to_unit: the unit to convert to.
        """
        return f"{value * self.units[from_unit] / self.units[to_unit]:.6g}"


@define
class Row:
    """What came of one question."""

    question: str
    call: str
    answer: str
    right_call: bool
    right_answer: bool


def make_agent(llm: Any, *actions: Any) -> Any:
    return registry.create("agents", {"type": "tools", "llm": llm, "actions": list(actions)})


def ask(agent: Any, question: str) -> tuple[list[Any], str]:
    """The tool calls that a question led to, and the answer."""
    session = f"question {question}"
    answer = agent(question, session_id=session)
    calls = [call for message in agent.agent.memory.get(session).get_memory() for call in tool_calls_of(message)]
    return calls, answer.content if isinstance(answer, AgentMessage) else str(answer)


def arithmetic(llm: Any) -> list[Row]:
    """The questions of :data:`ARITHMETIC`, for an agent with a calculator."""
    agent, calculator, rows = make_agent(llm, "calculator"), Calculator(), []
    for expression, number in ARITHMETIC.items():
        question = f"What is {expression}?"
        calls, answer = ask(agent, question)
        written = calls[0].arguments["expression"] if calls else ""
        result = calculator({"expression": written}).format_result()
        rows.append(Row(question, written, answer, result == str(number), _contains(answer, number)))
    return rows


def choices(llm: Any) -> list[Row]:
    """The questions of :data:`CHOICES`, for an agent with three actions."""
    agent, rows = make_agent(llm, "calculator", Weather(), Convert()), []
    for question, action in CHOICES.items():
        calls, answer = ask(agent, question)
        written = f"{calls[0].name} {calls[0].arguments}" if calls else ""
        rows.append(Row(question, written, answer, bool(calls) and calls[0].name.lower() == action.lower(), True))
    return rows


def _contains(answer: str, number: float) -> bool:
    return any(float(text.replace(",", "")) == number for text in NUMBER.findall(answer))


def _table(title: str, rows: list[Row], *, answers: bool) -> None:
    print(f"\n{title}\n")
    for row in rows:
        marks = ("✓" if row.right_call else "✗") + (("✓" if row.right_answer else "✗") if answers else "")
        print(f"{marks}  {row.question:40} {row.call:62} {row.answer}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="another model")
    llm = registry.create("llms", {"type": "llamacpp", "path": parser.parse_args().path, "temperature": 0.0})
    begin = time.perf_counter()
    first, second = arithmetic(llm), choices(llm)
    _table("Arithmetic: right call, right number in the answer", first, answers=True)
    _table("Three actions: right action", second, answers=False)
    calls, answers, actions = (
        sum(r.right_call for r in first),
        sum(r.right_answer for r in first),
        sum(r.right_call for r in second),
    )
    print(
        f"\ncalls {calls}/10 (promised {RIGHT_CALLS})   answers {answers}/10 ({RIGHT_ANSWERS})   actions {actions}/10 ({RIGHT_CHOICES})"
    )
    print(f"{time.perf_counter() - begin:.1f} s")
    return int(calls < RIGHT_CALLS or answers < RIGHT_ANSWERS or actions < RIGHT_CHOICES)


if __name__ == "__main__":
    sys.exit(main())
