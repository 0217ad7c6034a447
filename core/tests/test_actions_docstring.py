"""Docstrings in three styles say the same."""

import pytest

from lagent.actions.docstring import Item, parse_docstring

GOOGLE = """Search the web.

    Several lines
        of text.

    Args:
        query (str): what to search for,
            over two lines
        count (Optional[int], optional): how many
        *rest: the others
        bare:
            described below
        not an entry

    Returns:
        dict: the results
            * title (str): of the page
            * url: its address
"""
NUMPY = """Search the web.

    Several lines
        of text.

    Parameters
    ----------
    query : str
        what to search for,
        over two lines
    count : Optional[int], optional
        how many
    *rest
        the others
    bare :
        described below

    Returns
    -------
    dict
        the results
        * title (str): of the page
        * url: its address
"""
SPHINX = """Search the web.

    Several lines
        of text.

    :param query: what to search for,
        over two lines
    :type query: str
    :param Optional[int], optional count: how many
    :param rest: the others
    :param bare: described below
    :raises ValueError: never
    :return: the results
        * title (str): of the page
        * url: its address
    :rtype: dict
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_styles_are_equivalent(text: str) -> None:
    docs = parse_docstring(text)
    assert docs.text == "Search the web.\n\nSeveral lines\n    of text."
    assert docs.parameters == {
        "query": Item("query", "str", "what to search for,\nover two lines"),
        "count": Item("count", "Optional[int], optional", "how many"),
        "rest": Item("rest", None, "the others"),
        "bare": Item("bare", None, "described below"),
    }
    assert docs.returns == [Item(None, "dict", "the results\n* title (str): of the page\n* url: its address")]


@pytest.mark.parametrize(
    ("line", "named", "item"),
    [
        ("int: the sum", False, Item(None, "int", "the sum")),
        ("list[dict[str, int]]: all", False, Item(None, "list[dict[str, int]]", "all")),
        ("(int): the sum", False, Item(None, "int", "the sum")),
        ("total (int): the sum", False, Item("total", "int", "the sum")),
        ("the sum of both", False, Item(None, None, "the sum of both")),
        ("total: the sum", True, Item("total", None, "the sum")),
        ("total (int): the sum", True, Item("total", "int", "the sum")),
        ("(int): the sum", True, Item(None, "int", "the sum")),
    ],
)
def test_results_in_google_style(line: str, named: bool, item: Item) -> None:
    assert parse_docstring(f"Text.\n\nReturns:\n    {line}\n", named_returns=named).returns == [item]


def test_numpy_results_may_be_named() -> None:
    docs = parse_docstring("Text.\n\nReturns\n-------\nx, y : int\n    a point\n")
    assert docs.returns == [Item("x", "int", "a point"), Item("y", "int", "a point")]


def test_roles_are_written_plainly() -> None:
    docs = parse_docstring("See :py:func:`~a.b`.\n\nArgs:\n    x (:class:`Optional[int]`): of :attr:`y`\n")
    assert docs.text == "See a.b."
    assert docs.parameters["x"] == Item("x", "Optional[int]", "of y")


@pytest.mark.parametrize("text", [None, "", "   ", "Args:", ":param: nothing", "Note:\n    x\n\nTitle\n-----\n"])
def test_odd_docstrings_say_nothing(text: str | None) -> None:
    docs = parse_docstring(text)
    assert (docs.parameters, docs.returns) == ({}, [])


def test_other_sections_end_the_text() -> None:
    docs = parse_docstring(
        "Text: with a colon\n\nImportant:\n    x: no parameter\n\nArguments:\n    y: one\n\nRaises:\n    ValueError: z\n"
    )
    assert docs.text == "Text: with a colon"
    assert list(docs.parameters) == ["y"]
