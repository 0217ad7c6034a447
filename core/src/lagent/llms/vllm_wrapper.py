"""Where lagent 0.5 has the models of vLLM; see :mod:`lagent.llms`."""

from lagent.llms import __getattr__ as __getattr__

__all__: list[str] = []
