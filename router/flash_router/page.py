"""The dashboard: one file without outside parts, and headers that let it do nothing but read /fleet."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files


def _hashes(tag: str, html: str) -> str:
    """CSP sources for the inline elements of one kind: what is not on this page does not run."""
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HTML = files("flash_router").joinpath("page.html").read_text("utf-8")
CSP = (
    f"default-src 'none'; script-src {_hashes('script', HTML)}; style-src {_hashes('style', HTML)};"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": CSP,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
