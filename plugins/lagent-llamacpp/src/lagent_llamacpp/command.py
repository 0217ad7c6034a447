"""``lagent models``: the model files that lagent fetches by itself."""

from __future__ import annotations

import argparse

from lagent_llamacpp import models

__all__ = ["ModelsCommand"]


class ModelsCommand:
    """List, fetch and remove the models of :data:`lagent_llamacpp.models.CATALOG`."""

    help = "list, fetch and remove model files"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "what", nargs="?", choices=["list", "fetch", "remove"], default="list", help="what to do (default: list)"
        )
        parser.add_argument("name", nargs="?", default=models.DEFAULT, help=f"which model (default: {models.DEFAULT})")

    def run(self, args: argparse.Namespace) -> int:
        if args.what == "fetch":
            print(models.fetch(args.name))
        elif args.what == "remove":
            print(f"removed {args.name}" if models.remove(args.name) else f"{args.name} was not there")
        else:
            for name, model in models.CATALOG.items():
                where = str(model.path) if models.cached(name) else "not fetched"
                print(f"{name}  {model.size >> 20} MB  {model.about}  {where}")
        return 0
