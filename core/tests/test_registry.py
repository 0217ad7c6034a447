"""Components by name: what people who publish and people who select components rely on."""

from __future__ import annotations

import functools
import re
import sys

import pytest

from lagent import registry
from lagent.discovery import PLUGIN_API, installed
from lagent.errors import (
    ComponentConflictError,
    ComponentLoadError,
    ComponentNotFoundError,
    ConfigurationError,
    PluginVersionError,
)

COMPONENT = "class Component:\n    def __init__(self, size=1, *, colour='red'):\n        self.size, self.colour = size, colour\n"
NEEDY = "class Component:\n    def __init__(self, size): self.size = size\n"


# Listing and getting ---------------------------------------------------------------------------------------------


def test_lists_without_importing_and_imports_only_what_is_asked_for(site):
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}, "parsers": {"p": "acme_llm:Component"}}, version="2.1")
    site.install("other", {"llms": {"other": "other:Component"}})
    assert registry.names("llms") == ["acme", "other"]
    (first, _) = registry.entries("llms")
    assert (first.name, first.kind, first.distribution, first.version) == ("acme", "llms", "acme-llm", "2.1")
    assert first.value == "acme_llm:Component"
    assert not {"acme_llm", "other"} & sys.modules.keys()
    assert registry.get("llms", "acme").__module__ == "acme_llm"
    assert "other" not in sys.modules


def test_there_are_nine_kinds():
    kinds = ["llms", "async_llms", "parsers", "aggregators", "memory", "actions", "agents", "hooks", "commands"]
    assert dict(registry.GROUPS) == {kind: f"lagent.{kind}" for kind in kinds}
    for call in (
        registry.names,
        registry.entries,
        lambda kind: registry.get(kind, "x"),
        lambda kind: registry.register(kind, "x", 1),
    ):
        with pytest.raises(ComponentNotFoundError, match="no kind of component 'llm'; there are llms"):
            call("llm")


def test_core_registers_its_own_components():
    assert {"calculator", "finish"} <= set(registry.names("actions"))
    for kind in registry.GROUPS:
        for entry in registry.entries(kind):
            if entry.distribution == "lagent-core":
                registry.get(kind, f"lagent-core:{entry.name}")


def test_a_model_of_one_colour_serves_both(site):
    site.install("acme", {"llms": {"acme": "acme:Component"}})
    assert registry.get("async_llms", "acme") is registry.get("llms", "acme")
    assert registry.names("async_llms") == []


def test_a_component_that_counts_as_false_is_itself(site):
    source = (
        "class Meta(type):\n    def __len__(cls): return 0\nclass Component(metaclass=Meta):\n    def __len__(self): return 0\n"
    )
    site.install("acme", {"memory": {"acme": "acme:Component"}}, source)
    assert registry.get("memory", "acme").__name__ == "Component"
    assert type(registry.create("memory", "acme")).__name__ == "Component"


# Making ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["acme", "acme:acme", "ACME:acme", {"type": "acme"}, {"type": "acme:acme"}, {"type": "acme.Component"}]
)
def test_makes_a_component_of_names_and_paths(site, spec):
    site.install("acme", {"actions": {"acme": "acme:Component"}}, COMPONENT)
    assert registry.create("actions", spec, colour="blue").colour == "blue"
    if isinstance(spec, dict):
        made = registry.create("actions", {**spec, "size": 3, "colour": "green"}, colour="blue")
        assert (made.size, made.colour) == (3, "green")
        assert "type" in spec


def test_makes_a_component_of_python_objects():
    finished = object()
    assert registry.create("llms", finished) is finished
    assert registry.create("llms", None) is None
    assert registry.create("llms", print) is print
    assert registry.create("llms", dict) == {}
    assert registry.create("llms", {"type": dict, "a": 1}) == {"a": 1}
    made = registry.create("llms", {"type": sorted, "reverse": True})
    assert isinstance(made, functools.partial)
    assert made([1, 2]) == [2, 1]


def test_a_finished_object_is_given_as_it_is(site):
    site.install("acme", {"hooks": {"acme": "acme:hook", "f": "acme:function"}}, "hook = object()\ndef function(a=1): return a\n")
    assert registry.create("hooks", "acme") is sys.modules["acme"].hook
    assert registry.create("hooks", "f") is sys.modules["acme"].function
    assert registry.create("hooks", {"type": "f", "a": 2})() == 2
    with pytest.raises(ConfigurationError, match="'acme' is a finished object and takes no arguments, but got a"):
        registry.create("hooks", {"type": "acme", "a": 1})


@pytest.mark.parametrize(
    ("source", "spec", "message"),
    [
        (COMPONENT, {"sise": 1}, "'acme' has no argument 'sise', did you mean 'size'?; its arguments are size, colour"),
        (COMPONENT, {"x": 1, "y": 2}, "'acme' has no argument 'x', 'y'; its arguments are size, colour"),
        (NEEDY, {}, "'acme' cannot be made: missing a required argument: 'size'; its arguments are size"),
        ("def Component(a): ...", {"b": 1}, "'acme' has no argument 'b'; its arguments are a"),
        ("class Component: ...", {"b": 1}, "'acme' has no argument 'b'; its arguments are none"),
    ],
)
def test_wrong_arguments_are_named(site, source, spec, message):
    site.install("acme", {"actions": {"acme": "acme:Component"}}, source)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        registry.create("actions", {"type": "acme", **spec})


def test_an_error_of_the_constructor_itself_comes_through(site):
    site.install(
        "acme", {"actions": {"acme": "acme:Component"}}, "class Component:\n    def __init__(self): raise TypeError('mine')\n"
    )
    with pytest.raises(TypeError, match="mine"):
        registry.create("actions", "acme")


def test_a_table_without_type_says_what_there_is(site):
    site.install("acme", {"actions": {"acme": "acme:Component"}})
    with pytest.raises(ConfigurationError, match="a table for an action needs a 'type', one of: acme"):
        registry.create("actions", {"name": "acme"})


@pytest.mark.parametrize("path", ["no.such.module", "os.no_such_thing", "lagent.errors.Nothing"])
def test_a_wrong_dotted_path_is_an_import_error(path):
    with pytest.raises(ComponentLoadError, match=re.escape(f"'{path}' of a model cannot be imported")) as caught:
        registry.create("llms", {"type": path})
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "os.system"},
        {"type": "acme", "llm": {"type": "os.system"}},
        {"type": "acme", "actions": ["x", {"type": "os.system"}]},
        {"type": "acme", "deep": {"er": [[{"type": "subprocess.Popen", "args": "ls"}]]}},
        {"type": "acme", "typed": {"type": "unicöde.näme"}},
        {"type": dict},
        {"type": print},
        {"type": ["os.system"]},
        dict,
        ["acme"],
        print,
    ],
)
def test_a_configuration_reaches_registered_names_only(site, spec):
    site.install("acme", {"agents": {"acme": "acme:Component"}}, "raise AssertionError('imported')")
    with pytest.raises(ConfigurationError):
        registry.create("agents", spec, trusted=False)


def test_a_configuration_may_hold_any_other_data(site):
    site.install("acme", {"agents": {"acme": "acme:Component", "a.b": "acme:Component"}}, "class Component(dict): ...")
    arguments = {
        "schema": {"type": "object"},
        "path": "Qwen2.5-7B.gguf",
        "parts": [{"type": "image/png.x"}],
        "memory": {"type": "a.b"},
    }
    assert registry.create("agents", {"type": "acme", **arguments}, trusted=False) == arguments
    assert registry.create("agents", "acme", trusted=False) == {}
    assert registry.create("agents", None, trusted=False) is None
    with pytest.raises(ComponentNotFoundError):
        registry.create("agents", "os.system", trusted=False)


# Registering in code ---------------------------------------------------------------------------------------------


def test_code_registers_before_installed_and_earlier_ones(site):
    site.install("acme", {"llms": {"acme": "acme:Component"}})
    first, second = object(), object()
    outer = registry.register("llms", "acme", first)
    assert registry.get("llms", "acme") is first
    with registry.register("llms", "acme", second) as component:
        assert component is second is registry.create("llms", "acme")
        (entry,) = registry.entries("llms")
        assert (entry.distribution, entry.version) == ("", "")
        outer.remove()
        assert registry.get("llms", "acme") is second
    outer.remove()
    assert registry.get("llms", "acme").__name__ == "Component"
    assert registry.get("llms", "acme:acme").__name__ == "Component"


# What goes wrong -------------------------------------------------------------------------------------------------


def test_a_name_of_two_distributions_has_to_be_chosen(site, monkeypatch):
    site.install("lagent-vllm", {"llms": {"vllm": "fake_vllm:Component"}}, version="0.6.0")
    site.install("acme-llm", {"llms": {"vllm": "acme_llm:Component", "mine": "acme_llm:Component"}}, version="3.0")
    with pytest.raises(ComponentConflictError) as caught:
        registry.create("llms", "vllm")
    for part in ("acme-llm 3.0", "lagent-vllm 0.6.0", "'acme-llm:vllm'", "'lagent-vllm:vllm'", "LAGENT_DISABLE_PLUGINS"):
        assert part in str(caught.value)
    assert isinstance(caught.value, LookupError)
    assert "acme_llm" not in sys.modules
    assert registry.get("llms", "Acme.LLM:vllm").__module__ == "acme_llm"
    assert registry.get("llms", "mine").__module__ == "acme_llm"
    monkeypatch.setenv("LAGENT_DISABLE_PLUGINS", "acme_llm:vllm")
    registry.refresh()
    assert registry.get("llms", "vllm").__module__ == "fake_vllm"
    assert registry.get("llms", "mine").__module__ == "acme_llm"


def test_the_same_distribution_twice_is_no_conflict(site):
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}, version="1.0")
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component", "gone": "acme_llm:Gone"}}, version="0.9")
    assert registry.get("llms", "acme").__module__ == "acme_llm"
    assert {entry.distribution for entry in installed().shadowed} == {"acme-llm"}


def test_what_pip_left_behind_is_not_installed(site):
    site.install("acme", {"llms": {"acme": "acme:Component"}}).rename(site.path / "~cme-1.0.dist-info")
    registry.refresh()
    assert registry.names("llms") == []
    assert [entry.name for entry in installed().shadowed] == ["acme"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no driver')", "RuntimeError: no driver"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import no_such_engine", "No module named 'no_such_engine'"),
        ("def", "SyntaxError"),
        ("", "has no attribute 'Component'"),
    ],
)
def test_a_plugin_that_cannot_be_imported_breaks_only_itself(site, source, message):
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}, source, version="7.1")
    site.install("other", {"llms": {"other": "other:Component"}})
    with pytest.raises(ComponentLoadError, match=message) as caught:
        registry.get("llms", "acme")
    assert isinstance(caught.value, ImportError)
    assert "model 'acme' of acme-llm 7.1 (acme_llm:Component) cannot be imported" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert registry.names("llms") == ["acme", "other"]
    assert registry.create("llms", "other")


def test_an_interrupt_is_not_mistaken_for_a_broken_plugin(site):
    site.install("acme", {"llms": {"acme": "acme:Component"}}, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.get("llms", "acme")


@pytest.mark.parametrize(
    ("api", "advice"),
    [
        ("0", "upgrade it"),
        ("0.9", "upgrade it"),
        ("nonsense", "upgrade it"),
        (f"{PLUGIN_API[0]}.{PLUGIN_API[1] + 1}", "upgrade lagent-core"),
        (str(PLUGIN_API[0] + 1), "upgrade lagent-core"),
    ],
)
def test_a_plugin_for_another_api_is_refused_before_it_is_imported(site, api, advice):
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}, "raise AssertionError", version="4.2", api=api)
    with pytest.raises(PluginVersionError, match=advice) as caught:
        registry.get("llms", "acme")
    assert f"acme-llm 4.2 was built for plugin API {api}" in str(caught.value)


@pytest.mark.parametrize("api", [None, "1", f"{PLUGIN_API[0]}.{PLUGIN_API[1]}", "1 = acme\n9"])
def test_a_plugin_for_this_api_or_without_declaration_is_taken(site, api):
    site.install("acme", {"llms": {"acme": "acme:Component"}}, api=api)
    assert registry.create("llms", "acme")


@pytest.mark.parametrize("damage", [b"[lagent.llms]\nacme\n", b"\xff\xfe[lagent.llms]\n"])
def test_damaged_metadata_hides_nobody_else_and_is_named(site, damage):
    (site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}) / "entry_points.txt").write_bytes(damage)
    site.install("other", {"llms": {"other": "other:Component"}})
    assert registry.create("llms", "other")
    with pytest.raises(
        ComponentNotFoundError, match=r"metadata of acme-llm cannot be read .*pip install --force-reinstall acme-llm"
    ):
        registry.get("llms", "acme")


@pytest.mark.parametrize("metadata", [None, b"", b"\xff\xff", b"no header at all"])
def test_a_distribution_without_readable_version_still_works(site, metadata):
    path = site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}) / "METADATA"
    path.unlink() if metadata is None else path.write_bytes(metadata)
    registry.refresh()
    (entry,) = registry.entries("llms")
    assert (entry.distribution, entry.version) == ("acme-llm", "")
    assert registry.create("llms", "acme")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("llms", "vllm", "no model 'vllm': it comes with lagent-vllm, which is not installed: pip install lagent-vllm"),
        ("async_llms", "vllm", "pip install lagent-vllm"),
        ("memory", "sqlite", "pip install lagent-sqlite"),
        ("llms", "amce", "no model 'amce': did you mean 'acme'?"),
        ("llms", "nothing-like-it", "installed are acme"),
        ("agents", "nothing", "no agent 'nothing': installed are none"),
        ("agents", "acme", "it is registered under llms, not under agents"),
        ("llms", "other:acme", "other does not register it, but acme does"),
        ("llms", "acme:", "no model 'acme:'"),
    ],
)
def test_a_missing_name_says_what_to_do(site, kind, name, message):
    site.install("acme", {"llms": {"acme": "acme:Component"}})
    with pytest.raises(ComponentNotFoundError, match=re.escape(message)) as caught:
        registry.get(kind, name)
    assert isinstance(caught.value, LookupError)
    assert not isinstance(caught.value, KeyError)


# Limits, renames, changes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "denied", "names"),
    [
        (None, "", ["a", "b", "core", "o"]),
        ("", "", ["core"]),
        ("acme", "", ["a", "b", "core"]),
        ("ACME:b, other", "", ["b", "core", "o"]),
        (None, "other", ["a", "b", "core"]),
        (None, "acme:a other", ["b", "core"]),
        ("acme", "acme:a", ["b", "core"]),
        (None, "lagent-core:core", ["a", "b", "o"]),
    ],
)
def test_the_environment_limits_what_is_found(site, monkeypatch, allowed, denied, names):
    site.install("acme", {"llms": {"a": "acme:Component", "b": "acme:Component"}})
    site.install("other", {"llms": {"o": "other:Component"}})
    site.install("lagent-core", {"llms": {"core": "acme:Component"}})
    if allowed is not None:
        monkeypatch.setenv("LAGENT_PLUGINS", allowed)
    monkeypatch.setenv("LAGENT_DISABLE_PLUGINS", denied)
    registry.refresh()
    assert registry.names("llms") == names
    for name in {"a", "b", "o", "core"} - set(names):
        with pytest.raises(ComponentNotFoundError, match="has it, but LAGENT_PLUGINS or LAGENT_DISABLE_PLUGINS keeps it out"):
            registry.get("llms", name)


def test_a_former_name_works_and_warns(site):
    groups = {"llms": {"new": "acme:Component"}, "llms.deprecated": {"old": "acme:Component", "older": "acme:Older"}}
    site.install("acme", groups, "class Component: ...\nclass Older: ...", version="2.0")
    assert registry.names("llms") == ["new"]
    with pytest.warns(FutureWarning, match="the model 'old' of acme 2.0 is now called 'new'"):
        assert registry.get("llms", "old") is registry.get("llms", "new")
    with pytest.warns(FutureWarning, match="the model 'older' of acme 2.0 will go"):
        registry.create("llms", "acme:older")


def test_changes_are_seen_after_a_refresh(site):
    assert registry.names("llms") == []
    folder = site.install("acme", {"llms": {"acme": "acme:Component"}})
    assert registry.names("llms") == ["acme"]
    entry_points = folder / "entry_points.txt"
    entry_points.write_text(entry_points.read_text().replace("acme = acme:", "renamed = acme:"))
    assert registry.names("llms") == ["acme"]
    registry.refresh()
    assert registry.names("llms") == ["renamed"]


# Classes from core's packages ------------------------------------------------------------------------------------


def test_a_class_is_found_by_its_name(site):
    site.install("lagent-vllm", {"llms": {"vllm": "fake_vllm:VllmModel"}}, "class VllmModel: ...")
    site.install("acme", {"llms": {"acme": "acme:VllmModel", "b": "acme.sub : AcmeModel"}}, "class VllmModel: ...")
    from lagent.llms import VllmModel

    assert VllmModel.__module__ == "fake_vllm"
    assert registry.create("llms", {"type": "lagent.llms.VllmModel"}).__class__ is VllmModel


def test_a_class_of_two_third_parties_is_a_conflict(site):
    for name in ("acme", "other"):
        site.install(name, {"hooks": {name: f"{name}:Tracer"}})
    with pytest.raises(ComponentConflictError, match=re.escape("lagent.hooks.Tracer is in acme 1.0 and other 1.0")):
        registry.find_class("lagent.hooks", "Tracer")


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        ("lagent.llms", "VllmModel", "pip install lagent-vllm"),
        ("lagent.llms", "AsyncGPTAPI", "pip install lagent-openai"),
        ("lagent.llms", "SensenovaAPI", "speaks OpenAI's protocol"),
        ("lagent.llms", "HFTransformer", "run the model in an engine"),
        ("lagent.prompts.parsers", "JSONParser", "pip install lagent-parsers"),
        ("lagent.actions", "IPythonInterpreter", "pip install lagent-actions"),
        ("lagent.agents", "MathCoder", "pip install lagent-internlm"),
        ("lagent.agents.aggregator", "InternLMToolAggregator", "pip install lagent-internlm"),
        ("lagent.hooks", "ActionPreprocessor", "pip install lagent-actions"),
        ("lagent.memory", "SQLiteStore", "pip install lagent-sqlite"),
    ],
)
def test_a_class_that_is_not_installed_says_what_to_install(site, module, name, hint):
    with pytest.raises(ImportError, match=re.escape(hint)):
        exec(f"from {module} import {name}")


def test_a_class_that_the_installed_version_lacks_says_upgrade(site, monkeypatch):
    site.install("lagent-vllm", {"llms": {"vllm": "fake_vllm:VllmModel"}})
    with pytest.raises(ImportError, match="the installed lagent-vllm does not have it: pip install --upgrade lagent-vllm"):
        from lagent.llms import AsyncVllmModel  # noqa: F401
    monkeypatch.setenv("LAGENT_PLUGINS", "")
    registry.refresh()
    with pytest.raises(ImportError, match="lagent-vllm, which LAGENT_PLUGINS or LAGENT_DISABLE_PLUGINS keeps out"):
        from lagent.llms import VllmModel  # noqa: F401


@pytest.mark.parametrize("name", ["NoSuchClass", "__wrapped__", "_private"])
def test_an_unknown_class_is_an_attribute_error(name):
    import lagent.llms

    assert not hasattr(lagent.llms, name)
    with pytest.raises(ImportError, match=name):
        exec(f"from lagent.llms import {name}")
