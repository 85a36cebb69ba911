"""The routing decision: what the request names, else the first rule that matches, else the score.

Counted by the share controller are the classified requests alone: those that name no tier and match no rule. What a
person or a rule decided is theirs to decide, and is not made up for on others. A request that falls back to the
other tier because its own is down counts as it was decided.
"""

from __future__ import annotations

import math

from flash_wire.settings import RouterLive, TierName
from flash_wire.v1 import inference_pb2 as pb

from flash_router.classify import Judgement, Prior
from flash_router.classify import load as load_prior
from flash_router.reading import Prompt
from flash_router.rules import Rules
from flash_router.share import ShareController, Verdict

UNSURE = 0.4
"""Log-odds below the threshold within which a prompt that was not read whole goes to standard all the same."""
_TIER: dict[TierName, pb.Tier] = {"flash": pb.FLASH, "standard": pb.STANDARD}

__all__ = ["UNSURE", "Decider", "load_prior"]


class Decider:
    """Chooses tiers for one router. For one thread at a time; a decision takes well under a millisecond."""

    def __init__(self, live: RouterLive, prior: Prior) -> None:
        """Raises PatternError (a ValueError) for a rule that cannot be compiled."""
        self._rules = Rules(live.routing.rules)
        self._prior = prior
        self.share = ShareController(live.routing.standard_share, prior.quantiles)

    def reload(self, live: RouterLive) -> None:
        """Takes new rules and a new share from the next decision on. Raises PatternError, and then changes nothing.

        The window of scores stays: a new rule costs the controller no new start.
        """
        self._rules = Rules(live.routing.rules)
        self.share.target = live.routing.standard_share

    @property
    def observed_share(self) -> float:
        """Share of standard among the last classified requests; the target before the first."""
        return self.share.observed

    @property
    def share_error(self) -> float:
        """observed_share - routing.standardShare."""
        return self.share.error

    def decide(
        self, asked: pb.GenerateRequest | Prompt, *, tier_forced: pb.Tier = pb.AUTO, tenant: str = ""
    ) -> pb.Decision:
        """The decision for `asked`: a request, a raw prompt, or (role, content) pairs. Counts for the share.

        A request's own tier and tenant hold where the arguments name none. Never fails.
        """
        return self._decide(asked, tier_forced, tenant, moves=True)

    def explain(
        self, asked: pb.GenerateRequest | Prompt, *, tier_forced: pb.Tier = pb.AUTO, tenant: str = ""
    ) -> pb.Decision:
        """What `decide` would answer now. Moves nothing."""
        return self._decide(asked, tier_forced, tenant, moves=False)

    def _decide(
        self, asked: pb.GenerateRequest | Prompt, tier_forced: pb.Tier, tenant: str, *, moves: bool
    ) -> pb.Decision:
        prompt: Prompt
        if isinstance(asked, pb.GenerateRequest):
            tier_forced, tenant = tier_forced or asked.tier, tenant or asked.tenant
            messages = [(message.role, message.content) for message in asked.messages]
            prompt = messages or asked.prompt
        else:
            prompt = asked
        if tier_forced != pb.AUTO:
            return pb.Decision(tier=tier_forced, how="forced")
        match = self._rules.match(prompt, tenant)
        if match.to is not None:
            return pb.Decision(tier=_TIER[match.to], how="rule", rule=match.rule)
        judgement = self._prior.judge(prompt)
        verdict = self.share.verdict(judgement.score)
        standard, note = self._settle(judgement, verdict)
        if moves:
            self.share.record(judgement.score, standard)
        return pb.Decision(
            tier=pb.STANDARD if standard else pb.FLASH,
            how="score",
            score=judgement.score,
            threshold=verdict.threshold,
            reasons=[pb.Reason(name=name, weight=weight) for name, weight in judgement.reasons],
            truncated=judgement.truncated,
            note="; ".join(part for part in (note, match.note) if part),
        )

    def _settle(self, judgement: Judgement, verdict: Verdict) -> tuple[bool, str]:
        """The tier, and what a person should know of it."""
        target = self.share.target
        if target in (0.0, 1.0):
            return verdict.standard, f"standardShare is {target:g}: {'all' if target else 'none'} of them"
        near = _log_odds(verdict.threshold) - _log_odds(judgement.score) < UNSURE
        if judgement.truncated and near and not verdict.standard:
            return True, "not read whole and close to the threshold: standard"
        return verdict.standard, "equal scores are divided between the tiers to hold the share" if verdict.tie else ""


def _log_odds(probability: float) -> float:
    inside = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))
