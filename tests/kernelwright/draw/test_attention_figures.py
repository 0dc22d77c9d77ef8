"""Masks, the layouts of chapter 9's last rung, and who works when in chapter 10's."""

from __future__ import annotations

from kernelwright.draw import accumulator_map, corner_masks, role_timeline


def test_the_masks_agree_where_there_are_as_many_keys_as_queries() -> None:
    frames = corner_masks().frames
    assert frames[0].svg.count("kw-used") == 2 * (1 + 2 + 3 + 4)
    # Three older keys: each query sees so many more at the bottom right.
    assert frames[3].svg.count("kw-used") == 2 * (1 + 2 + 3 + 4) + 4 * 3
    assert "query 0 is token 3. At the bottom right it sees 4 keys" in frames[3].words


def test_a_lane_keeps_its_scores_as_weights() -> None:
    figure = accumulator_map()
    assert len(figure.frames) == 33
    assert "rows 3 and 11, keys 2 and 3" in figure.frames[14].words
    # Eight elements on either side, two of each register's colour.
    assert figure.frames[14].svg.count("kw-used") == 16


def test_what_is_above_overlaps() -> None:
    said = [frame.words for frame in role_timeline().frames]
    assert "tensor cores busy 50%, exponentials busy 50%" in said[0]
    assert "tensor cores busy 67%, exponentials busy 67%" in said[1]
    assert "tensor cores busy 100%, exponentials busy 100%" in said[2]
