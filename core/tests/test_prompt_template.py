"""PromptTemplate fills in templates in both syntaxes and says what is wrong with the others."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.errors import ConfigurationError
from lagent.prompts import PromptTemplate, StrParser
from lagent.prompts.parsers import StrParser as SameStrParser


def test_package_exports_parsers_as_well() -> None:
    from lagent.prompts import ParserStream

    assert StrParser is SameStrParser
    assert ParserStream.__module__ == "lagent.prompts.parsers"


@pytest.mark.parametrize(
    ("format_type", "template"),
    [("json", "{name} is {age}, {{literal}}"), ("jinja", "{{ name }} is {{ age }}, {literal}")],
)
def test_fills_in_variables(format_type: str, template: str) -> None:
    prompt = PromptTemplate(template, format_type)
    assert prompt.format(name="Ada", age=36) == "Ada is 36, {literal}"
    assert str(prompt) == "Ada is 36, {literal}"
    assert set(prompt.parse_template(template)) == {"name", "age"}


def test_reaches_into_variables() -> None:
    assert PromptTemplate("{point.real:.1f} {words[1]}").format(point=1 + 2j, words=["a", "b"]) == "1.0 b"
    assert PromptTemplate("{% for w in words %}{{ w.upper() }}{% endfor %}", "jinja").format(words=["a", "b"]) == "AB"


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True), st.text(), min_size=1))
def test_any_variables_stand_where_they_are_named(variables: dict[str, str]) -> None:
    template = "|".join(f"{{{name}}}" for name in variables)
    assert PromptTemplate(template).format(**variables) == "|".join(variables.values())


@pytest.mark.parametrize("format_type", ["json", "jinja"])
def test_infos_fill_their_variables_unless_given(format_type: str) -> None:
    opening, closing = ("{", "}") if format_type == "json" else ("{{ ", " }}")
    prompt = PromptTemplate(f"{opening}action_info{closing};{opening}agents_info{closing}", format_type)
    prompt.actions_info, prompt.agents_info = {"name": "search"}, "two agents"
    assert prompt.format() == "{'name': 'search'};two agents"
    assert prompt.format(action_info="none") == "none;two agents"


@pytest.mark.parametrize("format_type", ["json", "jinja"])
def test_infos_that_the_template_does_not_name_are_left_out(format_type: str) -> None:
    prompt = PromptTemplate("Hello", format_type)
    prompt.actions_info = "unused"
    assert prompt.format() == "Hello"


@pytest.mark.parametrize(
    ("format_type", "template", "variables", "error"),
    [
        ("json", "{name}", {"name": "x", "nmae": "y"}, "no variable nmae; it has name"),
        ("json", "plain", {"name": "x"}, "it has none"),
        ("json", "{name} {age}", {"name": "x"}, "KeyError: 'age'"),
        ("json", "{name.first}", {"name": "x"}, "AttributeError"),
        ("json", "{name", {"name": "x"}, "expected '}'"),
        ("jinja", "{{ name }}", {"nmae": "y"}, "no variable nmae; it has name"),
        ("jinja", "{% if %}", {}, "no valid Jinja"),
        ("jinja", "{{ name.first.last }}", {"name": "x"}, "UndefinedError"),
        ("jinja", "{{ name.__class__.__mro__ }}", {"name": "x"}, "SecurityError"),
    ],
)
def test_what_does_not_fit_is_named(format_type: str, template: str, variables: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        PromptTemplate(template, format_type).format(**variables)


def test_unknown_format_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'json' or 'jinja', not 'yaml'"):
        PromptTemplate("x", "yaml")


def test_missing_jinja_is_an_error_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    with pytest.raises(ConfigurationError, match="pip install jinja2"):
        PromptTemplate("{{ x }}", "jinja").format(x=1)
