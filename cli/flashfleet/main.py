"""The `flashfleet` command."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from flash_operator.plan import Place
from flash_wire.settings import SettingsError
from flash_wire.v1 import inference_pb2 as pb

from flashfleet import client

_TIERS = {"auto": pb.AUTO, "flash": pb.FLASH, "standard": pb.STANDARD}
_DEFAULT_ADDRESS = "127.0.0.1:9000"
_PRIORITIES = {"default": pb.PRIORITY_UNSPECIFIED, "high": pb.HIGH, "low": pb.LOW}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 cannot be used as given."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (SettingsError, client.AskFailed) as error:
        print(f"flashfleet: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flashfleet", description="Two language models served as one.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    port = _whole(0, 65535, "a port")
    up = verbs.add_parser("up", help="serve a FlashDeployment file on this machine")
    up.add_argument("file", type=Path)
    up.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    up.add_argument("--grpc-port", type=port, default=9000, help="0 takes a free one (default 9000)")
    up.add_argument("--http-port", type=port, default=8000, help="0 takes a free one (default 8000)")
    up.add_argument(
        "--fleet-port",
        type=port,
        default=0,
        help="where workers dial the router (default: a free one)",
    )
    up.add_argument("--dry-run", action="store_true", help="print the plan and start nothing")
    up.add_argument("--verbose", action="store_true", help="show what the processes log")
    up.set_defaults(run=_up)

    demo = verbs.add_parser("demo", help="start a small fleet, ask six prompts, stop")
    demo.set_defaults(run=_demo)

    ask = verbs.add_parser("ask", help="ask a running fleet and stream the answer")
    ask.add_argument("prompt")
    ask.add_argument("--address", default=_DEFAULT_ADDRESS, help=f"gRPC host:port (default {_DEFAULT_ADDRESS})")
    ask.add_argument("--system", help="system message")
    ask.add_argument("--model", default="", help="name, name:flash or name:standard")
    ask.add_argument("--tier", choices=_TIERS, default="auto")
    ask.add_argument("--priority", choices=_PRIORITIES, default="default")
    ask.add_argument("--max-tokens", type=_whole(1, 2**31 - 1), default=512, help="default 512")
    ask.add_argument("--temperature", type=float, default=0.0, help="0 (the default) takes the likeliest token")
    ask.add_argument("--seed", type=_whole(0, 2**64 - 1), help="for a temperature above 0")
    ask.add_argument("--stop", action="append", default=[])
    ask.add_argument("--tenant", default="")
    ask.add_argument("--timeout", type=float, default=300, help="seconds")
    ask.set_defaults(run=_ask)

    status = verbs.add_parser("status", help="tiers, queues and workers of a running fleet")
    status.add_argument("--url", default="http://127.0.0.1:8000", help="the router's HTTP address")
    status.add_argument("--json", action="store_true", help="print the record as it is")
    status.set_defaults(run=_status)

    route = verbs.add_parser("route", help="the routing decision").add_subparsers(required=True, metavar="VERB")
    explain = route.add_parser("explain", help="show which tier a prompt would get, and why")
    explain.add_argument("prompt")
    explain.add_argument("--file", type=Path, help="judge by this FlashDeployment's rules, without a running fleet")
    explain.add_argument("--address", help="the running fleet to ask (gRPC host:port; default 127.0.0.1:9000)")
    explain.set_defaults(run=_explain)
    return parser


def _whole(least: int, most: int, what: str = "a number") -> Callable[[str], int]:
    """A reader of whole numbers within bounds, for argparse."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not {what} from {least} to {most}")
        return value

    return read


def _up(options: argparse.Namespace) -> int:
    from flashfleet import up

    place = Place(options.host, options.grpc_port, options.http_port, options.fleet_port, 0)
    if options.dry_run:
        up.show_plan(options.file, place)
        return 0
    return asyncio.run(up.run(options.file, place, verbose=options.verbose))


def _demo(options: argparse.Namespace) -> int:
    from flashfleet import demo

    return asyncio.run(demo.run())


def _ask(options: argparse.Namespace) -> int:
    sampling = pb.Sampling(
        max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed, stop=options.stop
    )
    messages = [pb.Message(role="system", content=options.system)] if options.system else []
    messages.append(pb.Message(role="user", content=options.prompt))
    request = pb.GenerateRequest(
        model=options.model,
        messages=messages,
        sampling=sampling,
        tier=_TIERS[options.tier],
        priority=_PRIORITIES[options.priority],
        tenant=options.tenant,
    )
    answer = client.ask(options.address, request, timeout=options.timeout)
    print(f"\n[{client.why(answer.started.decision)} · {client.timings(answer)}]", file=sys.stderr)
    if answer.done.finish in (pb.ERROR, pb.DEADLINE, pb.CANCELLED):
        raise client.AskFailed(f"the answer was cut: {pb.FinishReason.Name(answer.done.finish)} {answer.done.detail}")
    return 0


def _status(options: argparse.Namespace) -> int:
    from flashfleet import status

    record = status.fetch(options.url)
    print(json.dumps(record, indent=2) if options.json else status.render(record))
    return 0


def _explain(options: argparse.Namespace) -> int:
    request = pb.GenerateRequest(messages=[pb.Message(role="user", content=options.prompt)])
    if options.file:
        decision, by = _judge(options.prompt, options.file), f"the rules of {options.file}, no fleet asked"
    elif options.address:
        decision, by = client.explain(options.address, request), f"the fleet at {options.address}"
    else:
        try:
            decision, by = client.explain(_DEFAULT_ADDRESS, request), f"the fleet at {_DEFAULT_ADDRESS}"
        except client.NobodyThere:
            decision, by = _judge(options.prompt, None), "the shipped prior without rules: no fleet runs here"
    print(f"({by})", file=sys.stderr)
    print(client.why(decision))
    for reason in decision.reasons:
        print(f"  {reason.weight:+.3f}  {reason.name}")
    return 0


def _judge(prompt: str, file: Path | None) -> pb.Decision:
    from flash_operator import api
    from flash_router.decide import Decider, load_prior
    from flash_wire.settings import RouterLive

    live = RouterLive(routing=api.load(file).spec.routing) if file else RouterLive()
    return Decider(live, load_prior()).explain([("user", prompt)])


if __name__ == "__main__":
    sys.exit(main())
