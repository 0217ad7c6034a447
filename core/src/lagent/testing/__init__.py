"""Conformance kits: the tests that every component of a kind has to pass.

Install them with ``pip install lagent-core[testing]``. The author of a plugin subclasses the kit of its kind in a test module and gives it
one fixture, the component::

    import pytest
    from lagent.testing import ModelTests
    from lagent_acme import AcmeModel

    class TestAcmeModel(ModelTests):
        @pytest.fixture
        def model(self):
            return AcmeModel("acme-7b")

``pytest`` then runs the whole kit. What a component cannot do is left out, visibly, by what the component itself declares (the
:class:`~lagent.llms.Capabilities` of a model) and by the class attributes that each kit documents. A test of a kit may be replaced
only by one that says why::

        @overrides_kit("the server counts tokens for all requests of a key together")
        def test_usage(self, model): ...
"""

from importlib.util import find_spec

if missing := [name for name in ("pytest", "hypothesis") if find_spec(name) is None]:
    raise ImportError(f"lagent.testing needs {' and '.join(missing)}: pip install 'lagent-core[testing]'")

import pytest

_KITS = ("actions", "aggregators", "hooks", "model_capabilities", "model_kit", "models", "parsers", "processes", "stores")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _KITS))

from lagent.testing.actions import ActionTests  # noqa: E402
from lagent.testing.aggregators import AggregatorTests  # noqa: E402
from lagent.testing.hooks import HookTests  # noqa: E402
from lagent.testing.kit import Kit, overrides_kit  # noqa: E402
from lagent.testing.models import AsyncModelTests, ModelTests  # noqa: E402
from lagent.testing.parsers import ParserTests  # noqa: E402
from lagent.testing.stores import MemoryStoreTests  # noqa: E402

__all__ = [
    "ActionTests",
    "AggregatorTests",
    "AsyncModelTests",
    "HookTests",
    "Kit",
    "MemoryStoreTests",
    "ModelTests",
    "ParserTests",
    "overrides_kit",
]
