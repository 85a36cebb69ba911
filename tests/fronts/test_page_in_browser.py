"""The page in a real browser, where one is installed: it draws the fleet and breaks none of its own rules."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from flash_wire.fleet import Fleet, WorkerRecord
from flash_wire.v1 import inference_pb2 as pb
from support.fronts import serving

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")


async def test_the_page_draws_the_fleet(core, tmp_path) -> None:
    async def read_fleet() -> Fleet:
        worker = WorkerRecord("i1", "<b>chat-flash-0", "flash", "ready", "r1", slots=8, slots_free=5)
        return Fleet([worker], [], {"flash": 1, "standard": 0}, [], 1)

    core.rule = "<img src=x>"
    async with serving(core, read_fleet) as fronts:
        call = fronts.metrics.call("http")
        call.started(core._started(pb.GenerateRequest(prompt="x"), "r-1"))
        call.done(pb.Done(finish=pb.STOP, usage=pb.Usage(prompt_tokens=3, completion_tokens=1234)))
        browser = await asyncio.create_subprocess_exec(
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            f"--user-data-dir={tmp_path}", "--virtual-time-budget=4000", "--dump-dom", fronts.http,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(browser.communicate(), 60)
        finally:
            if browser.returncode is None:
                browser.kill()
                await browser.wait()
    page, said = out.decode(), err.decode()
    assert "CONSOLE" not in said, said
    assert "&lt;b&gt;chat-flash-0" in page
    assert "rule &lt;img src=x&gt;" in page
    assert "3 of 8" in page
    assert "3 → 1,234" in page
    assert ">scaled to zero<" in page
