"""Tencent Cloud's search engine, whose requests are signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import httpx2

from lagent_actions.web.engines import BaseSearch, Hit

__all__ = ["TencentSearch"]


class TencentSearch(BaseSearch):
    """Tencent Cloud's search, signed as https://cloud.tencent.com/document/api/213/30654 says (TC3-HMAC-SHA256).

    Args:
        secret_id, secret_key: of the account.
        api_key: a temporary token, if there is one.
        tsn, insite, category, vrid: filters of the service.
        url: the address of the API; ``https://`` and ``host`` by default.
    """

    def __init__(
        self,
        secret_id: str = "Your SecretId",
        secret_key: str = "Your SecretKey",
        api_key: str = "",
        action: str = "SearchCommon",
        version: str = "2020-12-29",
        service: str = "tms",
        host: str = "tms.tencentcloudapi.com",
        topk: int = 3,
        tsn: int | None = None,
        insite: str | None = None,
        category: str | None = None,
        vrid: str | None = None,
        black_list: Sequence[str] | None = None,
        *,
        url: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(topk, black_list, **options)
        self.secret_id, self.secret_key, self.api_key = secret_id, secret_key, api_key
        self.action, self.version, self.service, self.host = action, version, service, host
        self.filters = {"Tsn": tsn, "Insite": insite, "Category": category, "Vrid": vrid}
        self.url = url or f"https://{host}/"

    def _hits(self, query: str) -> list[Hit]:
        body = json.dumps({"Query": query, **{name: value for name, value in self.filters.items() if value}})
        found = self._call("POST", self.url, headers=self._headers(body, int(time.time())), content=body)["Response"]
        if error := found.get("Error"):
            raise httpx2.HTTPError(f"the service answered {error.get('Code')}: {error.get('Message')}")
        pages = [json.loads(page["Display"]) for page in found.get("Pages", [])]
        return [(p["url"], p.get("content") or p.get("abstract_info") or "", p.get("title", "")) for p in pages if p.get("url")]

    def _headers(self, body: str, now: int) -> dict[str, str]:
        kind, signed = "application/json; charset=utf-8", "content-type;host;x-tc-action"
        canonical = "\n".join(
            [
                "POST",
                "/",
                "",
                f"content-type:{kind}\nhost:{self.host}\nx-tc-action:{self.action.lower()}\n",
                signed,
                _digest(body),
            ]
        )
        date = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%d")
        scope = f"{date}/{self.service}/tc3_request"
        key = f"TC3{self.secret_key}".encode()
        for part in (date, self.service, "tc3_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"TC3-HMAC-SHA256\n{now}\n{scope}\n{_digest(canonical)}"
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        return {
            "Authorization": f"TC3-HMAC-SHA256 Credential={self.secret_id}/{scope}, SignedHeaders={signed}, Signature={signature}",
            "Content-Type": kind,
            "Host": self.host,
            "X-TC-Action": self.action,
            "X-TC-Timestamp": str(now),
            "X-TC-Version": self.version,
            **({"X-TC-Token": self.api_key} if self.api_key else {}),
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
