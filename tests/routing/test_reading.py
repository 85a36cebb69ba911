"""What the classifier reads: the question is always seen, and what was left out is said."""

from __future__ import annotations

from flash_router import features, reading
from hypothesis import given, settings
from hypothesis import strategies as st

FILL = "The harbour was quiet that morning. " * 300


def test_short_prompt_is_read_whole() -> None:
    read = reading.read("  Why is the sky blue?\n")
    assert read.ask == "Why is the sky blue?"
    assert not read.truncated


def test_question_behind_a_long_text_is_seen() -> None:
    """Public pain: the classifier never sees the question when its input is cut at the end."""
    for joint in ("\n\n", "\n"):
        read = reading.read([("user", FILL.strip() + joint + "Prove that 7 is prime.")])
        assert read.ask == "Prove that 7 is prime."
        assert read.truncated


def test_instruction_before_a_long_text_is_seen() -> None:
    read = reading.read("Analyse this text.\n\n" + FILL)
    assert read.head.startswith("Analyse this text.")
    assert read.truncated


def test_last_user_turn_counts_not_the_last_message() -> None:
    turns = [("user", "Prove it."), ("assistant", "Done."), ("user", "Shorter!"), ("assistant", "Well")]
    read = reading.read(turns)
    assert read.ask == "Shorter!"
    assert read.turns == 1
    assert read.truncated, "the answer begun after it was not read"


def test_thanks_after_a_long_text_does_not_hide_the_question() -> None:
    read = reading.read(FILL + "\n\nWhat is the capital of Peru?\n\nThank you very much!")
    assert read.ask == "What is the capital of Peru?"


def test_a_list_of_conditions_is_kept_together() -> None:
    plan = "Plan a trip with these rules:\n\n- at most 300 euros\n- two free days"
    assert reading.read(FILL + "\n\n" + plan).ask == plan


def test_a_word_problem_in_one_block_with_filler_is_kept_together() -> None:
    problem = "Anna has 12 apples. She gives 3 apples to Tom. How many apples are left?"
    assert reading.read(FILL + problem).ask == problem


def test_earlier_turns_are_read_at_both_ends_only() -> None:
    read = reading.read([("system", "Start. " + FILL + "End."), ("user", "Hi")])
    assert read.context.startswith("Start.")
    assert read.context.endswith("End.")
    assert read.truncated


TEXT = st.text(max_size=4000) | st.text("a .\n?-1", min_size=3000, max_size=9000)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool", ""]), TEXT), max_size=5) | TEXT)
def test_any_prompt_is_read_within_the_cap(prompt: reading.Prompt) -> None:
    counts, read = features.vector(prompt)
    slack = 20  # the joints between parts
    assert len(read.ask) + len(read.head) + len(read.context) <= reading.MAX_CHARS + slack
    assert len(counts) == len(features.NAMES)
    assert all(abs(count) < 100 for count in counts)
    contents = [prompt] if isinstance(prompt, str) else [content for _, content in prompt]
    assert read.chars == sum(map(len, contents))
    if read.chars > reading.MAX_CHARS and not any(len(c) != len(c.strip()) for c in contents):
        assert read.truncated


def test_names_are_unique_and_about_sixty() -> None:
    assert len(set(features.NAMES)) == len(features.NAMES)
    assert 50 <= len(features.NAMES) <= 80


def test_counts_work_in_scripts_without_blanks() -> None:
    hard = dict(zip(features.NAMES, features.vector("请一步一步证明根号2是无理数。")[0], strict=True))
    assert hard["cue_reason"] > 0
    assert hard["cue_depth"] > 0
    assert hard["cue_formal"] > 0
    assert hard["script_unspaced"] > 0.5
