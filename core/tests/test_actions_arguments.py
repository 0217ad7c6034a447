"""Type hints become JSON schemas, and JSON values that fit them become what the hints ask for."""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypedDict, TypeVar, Union

import attrs
import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st

from lagent.actions import FunctionAction
from lagent.actions.arguments import fit, structure
from lagent.actions.json_schema import SchemaMaker
from lagent.errors import ActionArgumentsError
from lagent.schema import to_data

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Only(str, enum.Enum):
    ONE = "one"


@attrs.define
class Point:
    """A place.

    Attributes:
        x: to the right
        y: up
    """

    x: float
    y: float = 0.0
    tags: list[str] = attrs.field(factory=list)


@attrs.define
class Even:
    n: int = attrs.field()

    @n.validator
    def _even(self, attribute: Any, value: int) -> None:
        if value % 2:
            raise ValueError(f"{value} is odd")


@dataclasses.dataclass
class Line:
    start: Point
    end: Point | None = None
    colour: Colour = Colour.RED
    notes: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Tree:
    value: int
    children: "list[Tree]" = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: int


class Review(Movie, total=False):
    stars: Literal[1, 2, 3]


class Sparse(typing_extensions.TypedDict, total=False):
    needed: typing_extensions.Required[int]
    other: typing_extensions.NotRequired[str]


class User(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0, default=1)
    colour: Colour = Colour.BLUE


class Folder(pydantic.BaseModel):
    folders: "list[Folder]" = []


@attrs.define
class Box(Generic[T]):
    content: T


@attrs.define
class Derived:
    given: int
    made: int = attrs.field(default=3, init=False)


@dataclasses.dataclass
class AlsoDerived:
    given: int
    made: int = dataclasses.field(default=3, init=False)


def other_point() -> type:
    @attrs.define
    class Point:
        z: int

    return Point


UserId = NewType("UserId", int)
string, integer, number, boolean, null = ({"type": name} for name in ("string", "integer", "number", "boolean", "null"))
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "number", "description": "to the right"},
        "y": {"type": "number", "default": 0.0, "description": "up"},
        "tags": {"type": "array", "items": string},
    },
    "additionalProperties": False,
    "required": ["x"],
    "description": "A place.",
}


def schema_of(hint: Any) -> dict[str, Any]:
    maker = SchemaMaker()
    schema = maker.schema(hint)
    return schema | ({"$defs": maker.definitions} if maker.definitions else {})


def read(value: Any, hint: Any) -> Any:
    return structure(fit(value, schema_of(hint), "arg"), hint)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, string),
        (int, integer),
        (float, number),
        (bool, boolean),
        (None, null),
        (Any, {}),
        (object, {}),
        (types.ModuleType, {}),
        (T, {}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": integer}),
        (Sequence[int], {"type": "array", "items": integer}),
        (Iterable[int], {"type": "array", "items": integer}),
        (set[str], {"type": "array", "items": string, "uniqueItems": True}),
        (frozenset[str], {"type": "array", "items": string, "uniqueItems": True}),
        (Set[str], {"type": "array", "items": string, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": integer}),
        (tuple, {"type": "array", "items": {}}),
        (tuple[int, str], {"type": "array", "prefixItems": [integer, string], "minItems": 2, "maxItems": 2}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": integer}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": True}),
        (Optional[int], {"anyOf": [integer, null]}),  # noqa: UP045
        (int | None, {"anyOf": [integer, null]}),
        (Union[int, str, None], {"anyOf": [integer, string, null]}),  # noqa: UP007
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Literal[1], {"const": 1, "type": "integer"}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Colour, {"$ref": "#/$defs/Colour", "$defs": {"Colour": {"enum": ["red", "blue"], "type": "string"}}}),
        (Level, {"$ref": "#/$defs/Level", "$defs": {"Level": {"enum": [1, 2], "type": "integer"}}}),
        (Only, {"$ref": "#/$defs/Only", "$defs": {"Only": {"const": "one", "type": "string"}}}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, 5, types.SimpleNamespace(documentation="of Doc")], {"type": "integer", "description": "of Doc"}),
        (Annotated[int, pydantic.Field(description="of pydantic")], {"type": "integer", "description": "of pydantic"}),
        (Annotated[int, "inner", "ignored"], {"type": "integer", "description": "inner"}),
        (UserId, integer),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.time, {"type": "string", "format": "time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (decimal.Decimal, {"anyOf": [number, string]}),
        (Point, {"$ref": "#/$defs/Point", "$defs": {"Point": POINT}}),
        (
            Tree,
            {
                "$ref": "#/$defs/Tree",
                "$defs": {
                    "Tree": {
                        "type": "object",
                        "properties": {"value": integer, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                        "additionalProperties": False,
                        "required": ["value"],
                    }
                },
            },
        ),
        (
            Review,
            {
                "$ref": "#/$defs/Review",
                "$defs": {
                    "Review": {
                        "type": "object",
                        "properties": {"title": string, "year": integer, "stars": {"enum": [1, 2, 3], "type": "integer"}},
                        "additionalProperties": False,
                        "required": ["title", "year"],
                    }
                },
            },
        ),
        (
            Box[int],
            {
                "$ref": "#/$defs/Box",
                "$defs": {
                    "Box": {
                        "type": "object",
                        "properties": {"content": {}},
                        "additionalProperties": False,
                        "required": ["content"],
                    }
                },
            },
        ),
    ],
    ids=str,
)
def test_schema_of_a_hint(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema
    json.dumps(schema_of(hint))


@dataclasses.dataclass
class Plain:
    x: float
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


ALIKE = [
    *(str, int, float, bool, Any, list, tuple, dict, Colour, Level, Plain, Tree, User, dt.datetime, dt.date, dt.time, uuid.UUID),
    *(pathlib.Path, list[int], set[str], frozenset[int], tuple[int, ...], tuple[int, str], dict[str, int], dict[str, Any]),
    *(Sequence[int], Iterable[int], Mapping[str, Plain], int | None, int | str | None, list[Plain | Colour], UserId, Sparse),
    *(Literal["a", "b"], Literal[1], Literal["a", 1, None], Annotated[int, pydantic.Field(description="text")]),
]


@pytest.mark.parametrize("hint", ALIKE, ids=str)
def test_schemas_of_functions_are_those_of_pydantic(hint: Any) -> None:
    """Apart from titles, and from fields that a class does not have: those are refused here, as a model may have misspelt them."""

    def untyped(a, b=None, *, c=3): ...  # type: ignore[no-untyped-def]

    function: Any = untyped

    function.__annotations__ = {"a": hint, "b": int | None, "c": int}

    def compared(schema: Any) -> Any:
        if isinstance(schema, list):
            return [compared(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        left_out = {"title"} | ({"additionalProperties"} if schema.get("additionalProperties") is False else set())
        return {key: compared(value) for key, value in schema.items() if key not in left_out}

    assert compared(FunctionAction(function).schema()) == compared(pydantic.TypeAdapter(function).json_schema())


def test_dataclasses_refer_to_the_classes_of_their_fields() -> None:
    schema = schema_of(Line)
    assert schema["$defs"]["Line"] == {
        "type": "object",
        "properties": {
            "start": {"$ref": "#/$defs/Point"},
            "end": {"anyOf": [{"$ref": "#/$defs/Point"}, null], "default": None},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "notes": {"type": "object", "additionalProperties": string},
        },
        "additionalProperties": False,
        "required": ["start"],
    }
    assert schema["$defs"]["Point"] == POINT


@pytest.mark.parametrize("cls", [Derived, AlsoDerived])
def test_fields_that_cannot_be_given_are_not_shown(cls: type) -> None:
    assert list(schema_of(cls)["$defs"][cls.__name__]["properties"]) == ["given"]


def test_pydantic_models_bring_their_own_schema() -> None:
    own = User.model_json_schema()
    definitions = own.pop("$defs")
    assert schema_of(User) == {"$ref": "#/$defs/User", "$defs": {"User": own, **definitions}}
    recursive = schema_of(Folder)
    assert recursive["$defs"]["Folder"]["properties"]["folders"]["items"] == {"$ref": "#/$defs/Folder"}


def test_classes_of_one_name_are_kept_apart() -> None:
    other = other_point()
    schema = schema_of(tuple[Point, other])  # type: ignore[valid-type]
    first, second = (item["$ref"].rpartition("/")[2] for item in schema["prefixItems"])
    assert list(schema["$defs"][first]["properties"]) == ["x", "y", "tags"]
    assert list(schema["$defs"][second]["properties"]) == ["z"]


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        ("3.0", int, 3),
        ("-2", float, -2.0),
        (2, float, 2.0),
        ("TRUE", bool, True),
        ("false", bool, False),
        (7, str, "7"),
        (1.5, str, "1.5"),
        ("[1, 2]", list[int], [1, 2]),
        ('{"x": "1"}', Point, Point(1.0)),
        ((1, 2), list[int], [1, 2]),
        ([1, 1], set[int], {1}),
        ([1, "a"], tuple[int, str], (1, "a")),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2], Iterable[int], [1, 2]),
        ({"x": 1, "y": 2, "tags": ["a"]}, Point, Point(1, 2, ["a"])),
        ({"start": {"x": 1}, "end": None, "colour": "blue"}, Line, Line(Point(1), None, Colour.BLUE)),
        ({"value": 1, "children": [{"value": "2"}]}, Tree, Tree(1, [Tree(2)])),
        ({"needed": "1"}, Sparse, {"needed": 1}),
        ({"needed": 1, "other": "x"}, Sparse, {"needed": 1, "other": "x"}),
        ("3", typing_extensions.TypeAliasType("Number", int), 3),
        ({"title": "M", "year": "1931"}, Movie, {"title": "M", "year": 1931}),
        ({"name": "Ada"}, User, User(name="Ada")),
        ({"content": 3}, Box[int], Box(3)),
        (1, Level, Level.LOW),
        ("2", Level, Level.HIGH),
        ("one", Only, Only.ONE),
        ("1", Literal[1, 2], 1),
        (None, int | None, None),
        ("5", int | None, 5),
        ("5", int | str, "5"),
        (5, str | int, 5),
        (True, int | bool, True),
        (5.0, int | float, 5.0),
        ({"x": 1}, Colour | Point, Point(1)),
        ({"n": 2}, Point | Even, Even(2)),
        ("red", Colour | Point, Colour.RED),
        ([{"x": 1}, "red"], list[Point | Colour], [Point(1), Colour.RED]),
        ({"a": [1]}, Any, {"a": [1]}),
        (4, UserId, 4),
        (4, Annotated[int, "text"], 4),
        ("2024-02-29T12:00:00Z", dt.datetime, dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc)),
        ("2024-02-29", dt.date, dt.date(2024, 2, 29)),
        ("12:30:00", dt.time, dt.time(12, 30)),
        ("12345678123456781234567812345678", uuid.UUID, uuid.UUID("12345678123456781234567812345678")),
        ("a/b", pathlib.Path, pathlib.Path("a/b")),
        ("0.1", decimal.Decimal, decimal.Decimal("0.1")),
        ({"a": 1}, types.ModuleType, {"a": 1}),
    ],
    ids=repr,
)
def test_values_become_what_the_hint_asks_for(value: Any, hint: Any, expected: Any) -> None:
    result = read(value, hint)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "error"),
    [
        ("x", int, "argument 'arg' should be an integer, got 'x'"),
        ("3.5", int, "argument 'arg' should be an integer, got '3.5'"),
        (3.5, int, "argument 'arg' should be an integer, got 3.5"),
        (True, int, "argument 'arg' should be an integer, got True"),
        (None, int, "argument 'arg' should be an integer, got None"),
        ("null", int, "argument 'arg' should be an integer, got 'null'"),
        ("nan!", float, "argument 'arg' should be a number, got 'nan!'"),
        (1, bool, "argument 'arg' should be a boolean, got 1"),
        ("yes", bool, "argument 'arg' should be a boolean, got 'yes'"),
        (True, str, "argument 'arg' should be a string, got True"),
        (["a"], str, "argument 'arg' should be a string, got ['a']"),
        ("abc", list[int], "argument 'arg' should be an array, got 'abc'"),
        ("[" * 10**5, list[int], f"argument 'arg' should be an array, got '{'[' * 79}…"),
        ([1, "b"], list[int], "argument 'arg[1]' should be an integer, got 'b'"),
        ([1], tuple[int, str], "argument 'arg' should have 2 items, got 1"),
        ({"a": "b"}, dict[str, int], "argument 'arg.a' should be an integer, got 'b'"),
        ("green", Colour, "argument 'arg' should be one of 'red', 'blue', got 'green'"),
        (True, Level, "argument 'arg' should be one of 1, 2, got True"),
        (True, Literal[1, "a"], "argument 'arg' should be one of 1, 'a', got True"),
        ("two", Only, "argument 'arg' should be 'one', got 'two'"),
        ("x", int | None, "argument 'arg' should be an integer or null, got 'x'"),
        ([], int | Colour, "argument 'arg' should be an integer or one of 'red', 'blue', got []"),
        ([None], list[int | float], "argument 'arg[0]' should be an integer or a number, got None"),
        ({"x": "a"}, Point | None, "argument 'arg.x' should be a number, got 'a'"),
        ({}, Point, "argument 'arg.x' is missing"),
        ({"x": 1, "z": 2}, Point, "argument 'arg.z' is unknown (known: 'arg.x', 'arg.y', 'arg.tags')"),
        ({"y": None}, Point, "argument 'arg.x' is missing; argument 'arg.y' should be a number, got None"),
        ({"start": {"x": 1}, "end": {"x": []}}, Line, "argument 'arg.end.x' should be a number, got []"),
        ({"value": 1, "children": [{"value": []}]}, Tree, "argument 'arg.children[0].value' should be an integer, got []"),
        ({"title": "M"}, Movie, "argument 'arg.year' is missing"),
    ],
    ids=repr,
)
def test_misfits_are_named(value: Any, hint: Any, error: str) -> None:
    with pytest.raises(ActionArgumentsError) as caught:
        fit(value, schema_of(hint), "arg")
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("value", "hint", "error"), [({"n": 3}, Even, "3 is odd"), ({"name": "A", "age": -1}, User, "age"), ("x", dt.date, "Invalid")]
)
def test_classes_may_refuse_what_fits(value: Any, hint: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read(value, hint)


def test_schemas_from_elsewhere_are_checked_as_well() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"]},
            "b": {"oneOf": [{"const": "x"}, {"type": "array", "minItems": 1}]},
            "c": {"type": "vector"},
            "d": {"enum": [1, 2]},
            "e": {"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, {"type": "null"}]},
        },
    }
    assert fit({"a": None, "b": [1], "other": 1}, schema) == {"a": None, "b": [1], "other": 1}
    for value, error in [
        ({"a": "x"}, "argument 'a' should be an integer or null, got 'x'"),
        ({"b": "y"}, "argument 'b' should be 'x' or an array, got 'y'"),
        ({"c": 1}, "argument 'c' should be a vector, got 1"),
        ({"e": "x"}, "argument 'e' should be an integer or a boolean or null, got 'x'"),
        ({"d": "1"}, "argument 'd' should be one of 1, 2, got '1'"),
        ({"b": []}, "argument 'b' should have at least 1 items, got 0"),
        ([], "the arguments should be an object, got []"),
    ]:
        with pytest.raises(ActionArgumentsError) as caught:
            fit(value, schema)
        assert str(caught.value) == error


@attrs.define
class Node:
    value: int
    following: "Node | None" = None


def test_deep_values_of_recursive_types() -> None:
    chain: Any = None
    for value in reversed(range(100)):
        chain = {"value": value, "following": chain}
    node = read(chain, Node)
    for value in range(100):
        assert node.value == value
        node = node.following
    broken: Any = {"value": "x"}
    for _ in range(100):
        broken = {"value": 1, "following": broken}
    path = "arg" + ".following" * 100 + ".value"
    with pytest.raises(ActionArgumentsError, match=f"^argument '{path}' should be an integer, got 'x'$"):
        read(broken, Node)


def test_what_fits_shares_no_container_with_what_was_given() -> None:
    given_value = {"a": [{"b": 1}]}
    fitted = fit(given_value, {})
    fitted["a"][0]["b"] = 2
    assert given_value == {"a": [{"b": 1}]}


text = st.text(max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
points = st.builds(Point, floats, floats, st.lists(text, max_size=3))
OF_HINT: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, text),
    (int, st.integers()),
    (float, floats),
    (bool, st.booleans()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (Point, points),
    (Line, st.builds(Line, points, st.none() | points, st.sampled_from(Colour), st.dictionaries(text, text, max_size=3))),
    (Movie, st.fixed_dictionaries({"title": text, "year": st.integers()})),
    (dt.datetime, st.datetimes()),
    (dt.date, st.dates()),
    (uuid.UUID, st.uuids()),
]


def widened(pairs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Pairs of a hint and a value that fits it, in containers and unions of the pairs given."""
    kinds: Any = (list, dict, tuple, Optional, Union)  # through a variable, as these are types made at run time
    list_, dict_, tuple_, optional, union = kinds
    return (
        st.lists(pairs, max_size=1).map(lambda items: (list_[items[0][0] if items else int], [value for _, value in items]))
        | pairs.map(lambda pair: (dict_[str, pair[0]], {"k": pair[1]}))
        | pairs.map(lambda pair: (optional[pair[0]], pair[1]))
        | pairs.map(lambda pair: (union[Even, pair[0], None], pair[1]))
        | st.tuples(pairs, pairs).map(lambda two: (tuple_[two[0][0], two[1][0]], (two[0][1], two[1][1])))
    )


@given(st.recursive(st.sampled_from(OF_HINT).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1])), widened, max_leaves=4))
def test_every_value_survives_the_way_through_json(pair: tuple[Any, Any]) -> None:
    hint, value = pair
    result = read(json.loads(json.dumps(to_data(value))), hint)
    assert result == value
    assert type(result) is type(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda c: st.lists(c, max_size=3) | st.dictionaries(text, c, max_size=3),
)


@given(json_values, st.sampled_from([hint for hint, _ in OF_HINT]))
def test_any_json_fits_or_is_refused(value: Any, hint: Any) -> None:
    with contextlib.suppress(ActionArgumentsError):
        json.dumps(fit(value, schema_of(hint), "arg"))
