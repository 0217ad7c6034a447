"""The calculator gives what Python's own arithmetic gives, without float noise, and nothing takes it long."""

import math
import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions import Calculator
from lagent.schema import ActionStatusCode

calculator = Calculator()

numbers = st.integers(0, 10**9).map(str) | st.decimals(0, 10**6, places=4).map(str)
expressions = st.recursive(
    numbers,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | inner.map(lambda e: f"-{e}")
    ),
    max_leaves=12,
)


def exactly(expression: str) -> Fraction:
    """The expression as Python calculates it with exact fractions for its numbers."""
    words = [
        f"Fraction('{word}')" if word[0].isdigit() else word
        for word in expression.replace("(", "( ").replace(")", " )").replace("-", " - ").split()
    ]
    value: Fraction = Fraction(eval("".join(words), {"Fraction": Fraction}))
    return value


@given(expressions)
def test_agrees_with_exact_arithmetic(expression: str) -> None:
    try:
        expected = exactly(expression)
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            calculator.run(expression)
        return
    result = calculator.run(expression)
    assert abs(Fraction(result) - expected) <= abs(expected) * Fraction(1, 10**14)
    if expected.denominator == 1:
        assert result == str(expected)


@given(st.integers(-50, 50), st.integers(0, 30))
def test_powers_of_integers_are_exact(base: int, exponent: int) -> None:
    assert calculator.run(f"({base})**{exponent}") == str(base**exponent)


@given(st.floats(1e-3, 1e3), st.floats(-20, 20))
def test_powers_and_functions_agree_with_math(x: float, y: float) -> None:
    assert float(calculator.run(f"{x!r} ** {y!r}")) == pytest.approx(x**y, rel=1e-12)
    for name in ("sqrt", "log", "log10", "log2", "exp", "sin", "cos", "tan", "atan"):
        if name != "exp" or x < 700:
            assert float(calculator.run(f"{name}({x!r})")) == pytest.approx(getattr(math, name)(x), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("0.1 * 3 - 0.3", "0"),
        ("1.1 * 1.1", "1.21"),
        ("1/3", "0.3333333333333333"),
        ("1/3*3", "1"),
        ("4.35 * 100", "435"),
        ("1 / 3e10", "3.333333333333333e-11"),
        ("2 ** 100", str(2**100)),
        ("2 ** 2000", str(2**2000)),
        ("2 ** -2", "0.25"),
        ("2 ** 0.5 * 2 ** 0.5", "2"),
        ("1 ** 10 ** 9", "1"),
        ("123456789012345678.5 * 2", "246913578024691357"),
        ("12345678901234567890.25", "12345678901234567890.25"),
        ("15% of 240", "36"),
        ("50% of 50% of 80 + 1", "21"),
        ("2.5 % of 200", "5"),
        ("17 % 5", "2"),
        ("2^10", "1024"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("12 * 12 = ?", "144"),
        ("math.sqrt(16)", "4"),
        ("sin(pi)", "0"),
        ("cos(0) + e * 0", "1"),
        ("round(2.5) + round(3.14159, 2)", "5.14"),
        ("max(1, 2.5, -3) - min(4, 1/2)", "2"),
        ("floor(7/2) + ceil(7/2)", "7"),
        ("abs(-7) + pow(2, 3)", "15"),
        ("factorial(20)", str(math.factorial(20))),
        ("log(8, 2)", "3"),
        ("1e300 * 1e300 / 1e300", str(10**300)),
        ("exp(100)", "2.68811714181614e+43"),
    ],
)
def test_results_are_written_without_noise(expression: str, result: str) -> None:
    assert calculator.run(expression) == result


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("2 +", "no arithmetic expression"),
        ("", "no arithmetic expression"),
        ("(" * 400, "no arithmetic expression"),
        ("1,234 + 1", "write numbers without commas"),
        ("1j", "not arithmetic"),
        ("True + 1", "not arithmetic"),
        ("'a' * 3", "not arithmetic"),
        ("x + 1", "'x' is not arithmetic"),
        ("__import__('os').system('true')", "not arithmetic"),
        ("(1).__class__", "not arithmetic"),
        ("[1][0]", "not arithmetic"),
        ("1 if 1 else 2", "not arithmetic"),
        ("round(1.5, ndigits=1)", "not arithmetic"),
        ("1 << 100000", "not arithmetic"),
        ("(-8) ** 0.5", "not a real number"),
        ("sqrt(-1)", "math domain error|nonnegative"),
        ("1 / 0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("0.0 ** -0.5", "division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("9 ** -(9 ** 9)", "too large"),
        ("0.5 ** (10 ** 9)", "too large"),
        ("1e999", "too large"),
        ("2.5 ** 1e6", "too large"),
        ("exp(700) * exp(700)", "too large"),
        ("exp(1000)", "too large"),
        ("*".join(["(2**4000)"] * 9), "too large"),
        ("factorial(10**9)", "from 0 to 500"),
        ("factorial(1.5)", "from 0 to 500"),
        ("factorial(factorial(450))", "from 0 to 500"),
        ("round(1.5, 10**9)", "at most 100"),
        ("1+" * 300 + "1", "at most 500"),
    ],
)
def test_what_is_no_bounded_arithmetic_is_refused(expression: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        calculator.run(expression)


@given(st.text(max_size=60) | st.text("0123456789+-*/%()., ^e", max_size=60))
def test_any_text_gives_a_number_or_an_error_for_the_model(text: str) -> None:
    done = calculator({"expression": text})
    if done.state == ActionStatusCode.SUCCESS:
        float(done.format_result())
    else:
        assert done.state == ActionStatusCode.API_ERROR
        assert done.errmsg


def test_operators_bind_as_in_python() -> None:
    assert calculator.run("-2 ** 2 + 3 * 4 // 5 % 3") == str(operator.add(-(2**2), 3 * 4 // 5 % 3))


def test_its_examples_are_true() -> None:
    assert [calculator.run(**example["arguments"]) for example in calculator.examples] == [
        e["result"] for e in calculator.examples
    ]
