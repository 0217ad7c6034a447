"""The frame of the command line, with commands of a third party, and ``lagent plugins``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import warnings

import pytest

from lagent.cli import main

pytest.importorskip("rich")

COMMAND = """
class Command:
    help = "greet 100% of the world"
    examples = {"lagent greet --loudly": "so that all hear it", "lagent greet": "softly"}

    def add_arguments(self, parser):
        parser.add_argument("--loudly", action="store_true", help="in capitals")
        parser.add_argument("--fail")

    def run(self, args):
        from lagent.errors import ConfigurationError
        errors = {"ours": ConfigurationError("the value\\n  is wrong"), "theirs": TypeError("oops"), "interrupt": KeyboardInterrupt()}
        if args.fail:
            raise errors[args.fail]
        print("HELLO" if args.loudly else "hello")
        return 7
"""


@pytest.fixture
def lagent(site, capsys):
    """Runs a command line; gives exit code, standard output and standard error."""
    site.install("acme", {"commands": {"greet": "acme:Command"}}, textwrap.dedent(COMMAND))
    site.install("lagent-core", {"commands": {"plugins": "lagent.cli.plugins:PluginsCommand"}}, version="0.6.0")

    def run(*arguments):
        try:
            code = main(arguments)
        except SystemExit as ended:  # argparse ends the program for --help and wrong usage
            code = ended.code
        return (code, *capsys.readouterr())

    return run


def test_runs_a_command_of_a_plugin(lagent):
    assert lagent("greet", "--loudly") == (7, "HELLO\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_commands_and_teaches_with_examples(lagent, arguments):
    code, out, err = lagent(*arguments)
    assert (code, err) == (0, "")
    assert "greet 100% of the world" in out
    assert "lagent greet --loudly  so that all hear it" in out
    assert "list the installed components" in out


def test_help_of_a_command(lagent):
    code, out, _ = lagent("greet", "--help")
    assert code == 0
    assert "in capitals" in out
    assert "  lagent greet           softly" in out


def test_only_the_command_that_is_called_is_imported(lagent, site):
    site.install("other", {"commands": {"broken": "other:Command"}}, "raise RuntimeError('broken')")
    assert lagent("greet")[0] == 7
    code, out, _ = lagent("--help")
    assert code == 0
    assert "cannot be loaded" in out
    assert "greet" in out
    code, out, err = lagent("broken")
    assert (code, out) == (2, "")
    assert "other 1.0" in err


def test_an_unknown_command_says_what_there_is(lagent):
    assert lagent("gret") == (2, "", "lagent: no command 'gret': did you mean 'greet'?\n")


def test_wrong_usage_is_argparse_business(lagent):
    code, out, err = lagent("greet", "--nonsense")
    assert (code, out) == (2, "")
    assert "unrecognized arguments: --nonsense" in err


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        ("ours", 2, "lagent: the value is wrong\n"),
        ("theirs", 1, "lagent: unexpected TypeError: oops ('--debug' shows where)\n"),
        ("interrupt", 130, ""),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(lagent, fail, code, message):
    assert lagent("greet", "--fail", fail) == (code, "", message)


@pytest.mark.parametrize(("fail", "error"), [("ours", "wrong"), ("theirs", "oops")])
@pytest.mark.parametrize("place", [0, 1])
def test_debug_raises(lagent, fail, error, place):
    arguments = ["greet", "--fail", fail]
    arguments.insert(place, "--debug")
    with pytest.raises((ValueError, TypeError), match=error):
        lagent(*arguments)


def test_without_the_extra_one_line_says_what_to_install(lagent, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert lagent("plugins") == (2, "", "lagent: the command line needs an extra: pip install 'lagent-core[cli]'\n")


def test_a_former_name_is_mentioned_in_one_line(lagent, site):
    site.install("other", {"commands.deprecated": {"hail": "other:Command"}}, textwrap.dedent(COMMAND))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert lagent("hail") == (7, "hello\n", "lagent: the command 'hail' of other 1.0 will go\n")


def test_plugins_lists_what_is_installed_and_imports_nothing(lagent, site):
    source = "raise RuntimeError('imported')"
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}, source, version="2.1", metadata="Summary: Speaks\n")
    code, out, err = lagent("plugins", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert listed["llms"] == [{"name": "acme", "distribution": "acme-llm", "version": "2.1", "summary": "Speaks"}]
    assert {row["name"] for row in listed["commands"]} == {"greet", "plugins"}
    code, out, _ = lagent("plugins", "llms")
    assert code == 0
    assert out.split() == ["kind", "name", "distribution", "version", "summary", "llms", "acme", "acme-llm", "2.1", "Speaks"]
    assert lagent("plugins", "llmss")[0] == 2


def test_a_table_is_cut_for_a_terminal_only(lagent, site, monkeypatch):
    site.install("acme-llm", {"llms": {"acme": "acme_llm:Component"}}, metadata=f"Summary: {'long ' * 100}\n")
    monkeypatch.setenv("COLUMNS", "60")
    assert "long long" in lagent("plugins", "llms")[1].splitlines()[1][200:]
    monkeypatch.setenv("FORCE_COLOR", "1")
    cut = lagent("plugins", "llms")[1].splitlines()[1]
    assert cut.endswith("…")
    assert len(re.sub(r"\x1b\[\d*m", "", cut)) <= 60


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_a_reader_that_goes_away_is_no_error():
    command = [sys.executable, "-m", "lagent", "plugins", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (1, -signal.SIGPIPE)
