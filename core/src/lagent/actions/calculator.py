"""Arithmetic on the syntax tree of an expression: exact where it can be, bounded in size and time, nothing else of Python."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar

from lagent.actions.base_action import BaseAction, tool_api

__all__ = ["Calculator"]

Number = int | float | Fraction

_MAX_LENGTH = 500  # characters; every operation costs at least one
_MAX_BITS = 4096  # of a number, so that no single operation takes long
_DIGITS = 15  # that a float is sure of


def _bits(value: Number) -> int:
    return 0 if isinstance(value, float) else max(abs(value.numerator), value.denominator).bit_length()


def _power(base: Number, exponent: Number) -> Any:
    whole = not isinstance(base, float) and not isinstance(exponent, float) and exponent.denominator == 1
    if whole and (_bits(base) - 1) * abs(int(exponent)) > _MAX_BITS:
        raise OverflowError
    return Fraction(base) ** int(exponent) if whole else float(base) ** float(exponent)


def _factorial(value: Number) -> int:
    if value != int(value) or not 0 <= value <= 500:
        raise ValueError("factorial takes a whole number from 0 to 500")
    return math.factorial(int(value))


def _round(value: Number, digits: Number = 0) -> Number:
    if digits != int(digits) or abs(int(digits)) > 100:
        raise ValueError("round takes a whole number of digits, at most 100")
    return round(Fraction(value), int(digits))


def _exactly(function: Callable[..., float]) -> Callable[..., float]:
    """A function whose results near zero are rounding errors of their arguments, such as ``sin(pi)``."""
    return lambda *args: round(function(*args), _DIGITS)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _factorial,
    "pow": _power,
    "log": math.log,
    "ln": math.log,
    **{name: _exactly(getattr(math, name)) for name in ("sin", "cos", "tan")},
    **{
        name: getattr(math, name)
        for name in ("sqrt", "exp", "log2", "log10", "asin", "acos", "atan", "atan2", "hypot", "degrees", "radians")
    },
}


class Calculator(BaseAction):
    """Calculate an arithmetic expression."""

    # Chosen by trial on a small model: it copies a result best into an answer that has no other number in it.
    examples: ClassVar[Sequence[dict[str, Any]]] = tuple(
        {
            "question": f"What is {question}?",
            "arguments": {"expression": expression},
            "result": result,
            "answer": f"The answer is {result}.",
        }
        for question, expression, result in (
            ("16+31", "16+31", "47"),
            ("(21-5)*6", "(21-5)*6", "96"),
            ("63 divided by 6", "63/6", "10.5"),
            ("(11+19)/5", "(11+19)/5", "6"),
            ("25% of 84", "25% of 84", "21"),
            ("(1 + 21) * 5", "(1 + 21) * 5", "110"),
        )
    )

    @tool_api
    def run(self, expression: str) -> str:
        """Calculate an arithmetic expression and give the result.

        Args:
            expression: numbers, + - * / // % ** ( ), percentages such as "25% of 84", pi, e, and functions such as
                sqrt, abs, round, min, max, floor, ceil, log, exp, sin, cos, factorial.
        """
        if len(expression) > _MAX_LENGTH:
            raise ValueError(f"the expression has {len(expression)} characters, at most {_MAX_LENGTH} are calculated")
        text = expression.strip().rstrip("=? ").replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-")
        text = re.sub(r"(\d+(?:\.\d+)?)\s*%\s*of\b", r"(\1/100)*", text).replace("math.", "")
        try:
            return _written(_value(ast.parse(text, mode="eval").body, text))
        except (SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"{expression!r} is no arithmetic expression, such as 2 * (3 + 4)") from None
        except ZeroDivisionError:
            raise ValueError("division by zero") from None
        except OverflowError:
            raise ValueError(f"a number in {expression!r} gets too large") from None


def _value(node: ast.expr, source: str) -> Number:
    value: Any
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        if not math.isfinite(node.value):
            raise OverflowError
        value = Fraction((ast.get_source_segment(source, node) or "").replace("_", "")) if node.value else 0
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        value = _BINARY[type(node.op)](_value(node.left, source), _value(node.right, source))
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        value = _UNARY[type(node.op)](_value(node.operand, source))
    elif isinstance(node, ast.Name) and node.id in _CONSTANTS:
        value = _CONSTANTS[node.id]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords:
        value = _FUNCTIONS[node.func.id](*(_value(arg, source) for arg in node.args))
    else:
        raise ValueError(
            f"{ast.unparse(node)!r} is not arithmetic; write numbers without commas, operators and {', '.join(_FUNCTIONS)}"
        )
    if isinstance(value, complex):
        raise ValueError(f"{ast.unparse(node)!r} is not a real number")
    if _bits(value) > _MAX_BITS or (isinstance(value, float) and not math.isfinite(value)):
        raise OverflowError
    return value  # type: ignore[no-any-return]


def _written(value: Number) -> str:
    """All digits of a whole number, all that are certain of a float, and of a fraction 15 after the point."""
    if value == int(value) and (abs(value) < 10**_DIGITS or not isinstance(value, float)):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    context = Context(prec=_DIGITS + len(str(abs(int(value)))))
    number = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    return f"{number:f}" if number.adjusted() >= -6 else f"{number:e}"
