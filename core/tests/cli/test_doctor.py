"""``lagent doctor``: one broken plugin of every sort, each reported, none suffered."""

from __future__ import annotations

import json
import time

import pytest

from lagent.cli import checks, main
from lagent.cli.probe import import_all

pytest.importorskip("rich")


@pytest.fixture
def doctor(site, capsys, monkeypatch):
    """Runs the command; gives the exit code, the findings and the states of the components by name."""

    def run(*arguments):
        code = main(["doctor", "--json", *arguments])
        report = json.loads(capsys.readouterr().out)
        findings = [(f["level"], f["distribution"], f["problem"], f["cure"]) for f in report["findings"]]
        return code, findings, {c["name"]: c["import"] for c in report["components"]}

    monkeypatch.setattr(checks, "_SLOW", float("inf"))  # whatever else the machine is busy with
    site.install("lagent-core", {"commands": {"doctor": "lagent.cli.doctor:DoctorCommand"}}, version="0.6.0")
    site.install("acme-good", {"llms": {"good": "acme_good:Component"}})
    return run


def test_a_sound_installation_passes(doctor, capsys):
    code, findings, states = doctor()
    assert (code, findings) == (0, [])
    assert isinstance(states["good"], float)
    assert main(["doctor"]) == 0
    assert "everything works" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise RuntimeError('no driver')", "cannot be imported: RuntimeError: no driver"),
        ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("import os; os._exit(7)", "the process that imported it ended with exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("import threading; threading.Event().wait()", "the import did not end within 3 s"),
        ("def", "SyntaxError"),
        ("import no_such_engine", "needs the module 'no_such_engine', which is not installed"),
        ("", "there is no acme_bad:Component: its entry points are stale"),
        (None, "is stale: there is no module 'acme_bad'"),
    ],
)
def test_a_broken_plugin_is_reported_and_breaks_nothing_else(doctor, site, source, problem):
    site.install("acme-bad", {"llms": {"bad": "acme_bad:Component"}}, source or "")
    if source is None:
        (site.path / "acme_bad.py").unlink()
    code, findings, states = doctor(*(["--timeout", "3"] if "wait()" in (source or "") else []))
    assert code == 1
    ((level, distribution, found, cure),) = findings
    assert (level, distribution) == ("error", "acme-bad")
    assert problem in found
    assert "acme" in cure
    assert states["bad"] == "broken"
    assert isinstance(states["good"], float)


def test_a_plugin_that_prints_or_is_slow_is_mentioned(doctor, site, monkeypatch):
    monkeypatch.setattr(checks, "_SLOW", 0.3)
    site.install("acme-slow", {"llms": {"slow": "acme_slow:Component"}}, "import time; time.sleep(0.4)\nclass Component: ...")
    loud = "while True:\n    try: print('hello' * 1000)\n    finally: break\nclass Component: ..."
    site.install("acme-loud", {"llms": {"loud": "acme_loud:Component"}}, loud)
    code, findings, _ = doctor("acme-slow", "Acme.Loud")
    assert code == 0
    assert [(level, name, problem.split(" 0.")[0][:35]) for level, name, problem, _ in findings] == [
        ("warning", "acme-loud", "importing acme_loud prints 'hellohe"),
        ("warning", "acme-slow", "importing acme_slow takes"),
    ]


def test_an_endless_import_takes_its_processes_with_it(site, tmp_path):
    marker = tmp_path / "alive"
    child = f"import time, pathlib\nwhile True: pathlib.Path({str(marker)!r}).touch(); time.sleep(0.05)"
    source = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\nwhile True: print('x' * 100000)"
    site.install("acme", {}, source)
    assert "did not end within 2 s" in import_all({"acme": []}, 2)["acme"].error
    assert marker.exists()
    time.sleep(0.2)
    marker.unlink()
    time.sleep(0.3)
    assert not marker.exists()


def test_a_plugin_for_another_api_is_not_even_imported(doctor, site):
    marker = site.path / "imported"
    site.install("acme", {"llms": {"bad": "acme:Component"}}, f"open({str(marker)!r}, 'w')", api="9")
    site.install("other", {"llms": {"old": "other:Component"}}, api=None)
    code, findings, states = doctor()
    assert code == 1
    assert states["bad"] == "refused"
    assert not marker.exists()
    assert {(level, name) for level, name, *_ in findings} == {("error", "acme"), ("note", "other")}


def test_conflicts_copies_remains_and_damage_are_told(doctor, site, monkeypatch):
    site.install("acme", {"llms": {"good": "acme:Component"}})
    site.install("acme-two", {"llms": {"two": "acme_two:Component"}}, version="1.0")
    site.install("acme-two", {"llms": {"two": "acme_two:Component"}}, version="2.0")
    site.install("gone", {"llms": {"gone": "gone:Component"}}).rename(site.path / "~one-1.0.dist-info")
    (site.install("acme-torn", {"llms": {"torn": "acme_torn:Component"}}) / "entry_points.txt").write_bytes(b"\xff")
    code, findings, states = doctor()
    assert code == 1
    told = {(level, name): problem for level, name, problem, _ in findings}
    assert "llms 'good' is registered by acme and by acme-good" in told["error", "acme"]
    assert "is hidden by another one" in told["warning", "acme-two"]
    assert "what pip left behind" in told["warning", "~one"]
    assert "cannot be read: UnicodeDecodeError" in told["error", "acme-torn"]
    assert set(states) == {"doctor", "good", "two"}


def test_what_a_plugin_requires_is_compared_with_what_is_installed(doctor, site):
    requires = [
        "pluggy>=99",
        "no-such-engine>=1.2",
        "attrs",
        "nothing; python_version < '3'",
        "no-such-server; extra == 'server'",
    ]
    metadata = "".join(f"Requires-Dist: {line}\n" for line in requires) + "Provides-Extra: server\n"
    site.install("acme", {"llms": {"acme": "acme:Component"}}, metadata=metadata)
    code, findings, _ = doctor()
    assert code == 1
    assert [(level, cure) for level, _, _, cure in findings] == [
        ("error", "pip install 'pluggy>=99'"),
        ("error", "pip install 'no-such-engine>=1.2'"),
        ("note", "pip install 'acme[server]'"),
    ]


def test_what_the_environment_keeps_out_is_told(doctor, site, monkeypatch):
    from lagent import registry

    monkeypatch.setenv("LAGENT_PLUGINS", "acme-good, misspelt")
    monkeypatch.setenv("LAGENT_DISABLE_PLUGINS", "acme-good:good")
    registry.refresh()
    code, findings, states = doctor()
    assert (code, set(states)) == (0, {"doctor"})
    assert [(level, name) for level, name, *_ in findings] == [("note", "acme-good"), ("warning", "misspelt")]


def test_the_table_says_the_same(doctor, site, capsys):
    site.install("acme-bad", {"llms": {"bad": "acme_bad:Component"}}, "raise RuntimeError('no driver')")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "RuntimeError: no driver" in shown
    assert "1 error" in shown
    assert next(line.split()[-1] for line in shown.splitlines() if " acme-bad " in line) == "broken"


@pytest.mark.parametrize("metadata", [None, b"", b"\xff\xff", b"Requires-Dist: ???\nName: x\nVersion: 1\n"])
def test_metadata_that_cannot_be_read_stops_nothing(doctor, site, metadata):
    path = site.install("acme", {"llms": {"acme": "acme:Component"}}) / "METADATA"
    path.unlink() if metadata is None else path.write_bytes(metadata)
    code, findings, states = doctor()
    assert code == 0
    assert isinstance(states["acme"], float)
    assert {(level, name) for level, name, *_ in findings} <= {("warning", "acme")}


@pytest.mark.parametrize(
    ("metadata", "version"), [(b"Name: other\n", "a version that cannot be read"), (b"Version: 0.1\n", "0.1")]
)
def test_what_does_not_fit_is_told(doctor, site, metadata, version):
    site.install("acme", {"llms": {"acme": "acme:Component"}}, metadata="Requires-Dist: other>=1\n")
    (site.install("other", {}) / "METADATA").write_bytes(metadata)
    code, ((level, name, problem, _),), _ = doctor()
    assert (code, level, name) == (1, "error", "acme")
    assert problem == f"other>=1 is needed, but {version} is installed"


@pytest.mark.parametrize(
    ("version", "problems"), [("0.32.0", []), ("0.20.0", ["engine>=0.30 is needed, but 0.20.0 is installed"])]
)
def test_another_build_of_what_is_required_counts(doctor, site, version, problems):
    site.install("acme", {"llms": {"acme": "acme:Component"}}, metadata="Requires-Dist: engine>=0.30\n")
    folder = site.install("engine-cpu", {}, version=version, api=None)
    (folder / "top_level.txt").write_text("engine\n")
    assert [problem for _, name, problem, _ in doctor()[1] if name == "acme"] == problems
