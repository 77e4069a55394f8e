import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from jobs.reporting.cases import Answer, Record, cases_of
from jobs.reporting.metric_tables import MAJORITY
from jobs.reporting.metrics import Yardstick, summarise
from jobs.reporting.model import ReportModel, Sample
from jobs.reporting.page import MAX_TEXT, build_page, draw_pictures, page_tables
from jobs.reporting.projection import Projection
from jobs.reporting.tables import keyed_table, plain
from jobs.reporting.words import headline, records
from tests.jobs.report_example import LABELS, example_model, outputs_of

SECTIONS = [
    *("result", "metrics", "tests", "classes", "slices", "orders", "sweeps", "audit", "map"),
    *("coverage", "stage1", "epr", "cost", "cases", "samples", "rejected", "warnings", "config"),
]


def part_of(page, section):
    """The HTML of one section."""
    return page.partition(f'<h2 id="{section}">')[2].partition("<h2")[0]


class Tags(HTMLParser):
    """Start tags with attributes, and ids of headings in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def model():
    return example_model()


@pytest.fixture(scope="module")
def page(model):
    return build_page(model)


def test_the_sections_come_in_their_order_and_tags_are_balanced(page):
    tags = Tags(page)
    assert tags.open == []
    assert [attrs["id"] for attrs in tags.named("h2")] == SECTIONS
    assert page.startswith("<!DOCTYPE html>")


def test_every_picture_is_inlined_with_alt_text_and_caption(page):
    tags = Tags(page)
    images = tags.named("img")
    assert len(images) == 6 == len(tags.named("figcaption"))
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)
    assert all(len(image["alt"]) > 20 for image in images)


def test_nothing_on_the_page_points_outside_it(page):
    tags = Tags(page)
    addresses = [attrs[k] for _, attrs in tags.tags for k in ("src", "href") if k in attrs]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    (policy,) = [m["content"] for m in tags.named("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    assert "@import" not in page
    assert "url(" not in page


HOSTILE = "<script>alert(1)</script><img src=http://example.invalid/x.png onerror=alert(2)>\"'&"


def test_hostile_text_in_every_place_stays_text():
    labels = [HOSTILE, "b"]
    outputs = outputs_of(40, 0.5, seed=0, labels=labels)
    measured = summarise(
        outputs,
        arm=dict.fromkeys(("task", "encoder", "engine", "arm", "stage1", "stage2"), HOSTILE),
        yardstick=Yardstick(labels, n_resamples=50),
    )
    summary = measured.summary | {"notes": [HOSTILE]}
    rejected = dict.fromkeys(("table", "status", "reason", HOSTILE), HOSTILE)
    one = Sample(HOSTILE, HOSTILE, "ok", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    case = cases_of(
        HOSTILE,
        [HOSTILE],
        answers={HOSTILE: {HOSTILE: Answer(HOSTILE, HOSTILE, HOSTILE, [HOSTILE])}},
        queries={HOSTILE: HOSTILE},
        records={HOSTILE: Record(HOSTILE, HOSTILE)},
    )
    page = build_page(
        ReportModel(
            title=HOSTILE,
            facts={HOSTILE: HOSTILE},
            summary=pd.DataFrame([summary]),
            slices=pd.DataFrame(measured.slices),
            confusion=pd.DataFrame(measured.confusion),
            stage1=[{"method": HOSTILE, HOSTILE: HOSTILE}],
            samples=[one],
            cases=case,
            rejected=[rejected],
            rejected_examples=[rejected | {"source_file": HOSTILE, "source_line": 3}],
            warnings=[HOSTILE],
            config_yaml=HOSTILE,
            versions={HOSTILE: HOSTILE},
        )
    )
    tags = Tags(page)
    assert tags.open == []
    assert tags.named("script") == []
    assert all("onerror" not in attrs for _, attrs in tags.tags)
    assert len(tags.named("img")) == 2
    assert page.count("&lt;script&gt;") > 20


def test_every_table_of_the_page_has_a_name_for_its_file(model, page):
    tables = page_tables(model)
    assert sorted(tables) == [
        *("audit-1", "candidates", "classes-1", "cost", "epr", "examples", "metrics-1", "noise-1"),
        *("order_spread-1", "orders-1", "rejected", "slices-1", "stage1", "statuses", "tests-1"),
    ]
    assert page.count("<table>") == len(tables)
    assert page_tables(ReportModel("empty")) == {}


def test_text_that_utf8_cannot_hold_does_not_stop_the_page():
    page = build_page(ReportModel("half a pair: \ud800", warnings=["nul \x00 and bell \x07"]))
    assert "half a pair: ?" in page
    page.encode("utf-8")


def test_an_empty_model_gives_every_section_with_a_sentence_why_it_is_empty():
    page = build_page(ReportModel("nothing yet"))
    tags = Tags(page)
    assert [attrs["id"] for attrs in tags.named("h2")] == SECTIONS
    assert (tags.named("table"), tags.named("img")) == ([], [])
    for section in re.split(r"<h2 id=", page)[1:]:
        assert 'class="missing"' in section


def test_arms_that_were_not_scored_are_shown_with_dashes_and_their_notes():
    outputs = outputs_of(6, 1.0, seed=0).assign(gold=None)
    measured = summarise(
        outputs,
        arm={"task": "t", "encoder": "e", "engine": "g", "arm": "blind"},
        yardstick=Yardstick(LABELS),
    )
    page = build_page(ReportModel("x", summary=pd.DataFrame([measured.summary])))
    assert "No arm was scored" in page
    assert "blind: None of the 6 rows has a gold label of the task" in page
    assert "No chart: no arm of this task was scored." in page


def test_each_task_has_its_own_headline_and_pictures(model):
    def both(table):
        return pd.concat([table, table.assign(task="other task")], ignore_index=True)

    doubled = replace(
        model,
        summary=both(model.summary),
        slices=both(model.slices),
        confusion=both(model.confusion),
        comparisons=both(model.comparisons),
    )
    pictures = draw_pictures(doubled)
    assert [picture.task for picture in pictures] == [
        *("things", "things", "things", "other task", "other task", "things", "", "")
    ]
    assert len({picture.name for picture in pictures}) == len(pictures)
    page = build_page(doubled, pictures)
    assert page.count("has the highest macro-F1 of 5 arms") == 2


def test_pictures_that_were_drawn_before_are_not_drawn_again(model):
    pictures = draw_pictures(model)[:1]
    assert len(Tags(build_page(model, pictures)).named("img")) == 1


def test_the_page_says_when_the_map_is_not_by_umap(model):
    (one,) = model.maps
    flat = replace(one, projection=Projection(one.projection.points, "PCA", "UMAP failed (why)"))
    page = build_page(replace(model, maps=[flat]))
    assert "PCA, because UMAP failed (why)." in page


def test_a_very_long_prompt_is_cut_and_says_so(model):
    one = Sample("a", "q", "ok", "x" * (MAX_TEXT + 5), "y", None, None)
    page = build_page(replace(model, samples=[one]), [])
    assert f"[... cut: {MAX_TEXT + 5:,} characters in all]" in page
    assert "x" * (MAX_TEXT + 1) not in page


def test_measures_of_candidates_are_shown_and_a_missing_one_says_why_once(page):
    section = re.split(r"<h2 id=", page)[SECTIONS.index("stage1") + 1]
    rows = re.findall(r"<tr>.*?</tr>", section.partition("Candidates without an LLM")[2])
    assert "Vendi score" in rows[0]
    assert "rare labels found" not in rows[0]  # known for none
    assert [re.findall(r"<td[^>]*>([^<]*)", row)[2:5] for row in rows[1:]] == [
        [method, f"{method}+knn", "100"] for method in ("random", "coverage", "dual-div")
    ]
    assert all("0.165" in row for row in rows[1:])
    assert section.count("so none is rare") == 1
    assert "random, coverage, dual-div: no label has fewer rows" in section


def test_rejected_examples_name_file_and_line(page):
    assert "data/part-1.jsonl:17" in page


def test_the_majority_baseline_stands_beside_every_score(model, page):
    for row in records(model.summary):
        assert f"{row['majority_accuracy']:.3f}" in page
        assert f"{row['accuracy']:.3f} [{row['accuracy_low']:.3f}" in page
        assert f"{row['macro_f1']:.3f} [{row['macro_f1_low']:.3f}" in page


def arm(name, macro_f1, half=0.05):
    row = {"arm": name, "n_scored": 200, "majority_label": "b"}
    for key in ("macro_f1", "accuracy"):
        row |= {key: macro_f1, f"{key}_low": macro_f1 - half, f"{key}_high": macro_f1 + half}
        row[f"majority_{key}"] = 0.1
    return row


def versus(name, against, difference, half):
    row = {"arm": name, "against": against, "n": 200}
    for key in ("macro_f1", "accuracy"):
        row |= {f"{key}_difference": difference}
        row |= {f"{key}_low": difference - half, f"{key}_high": difference + half}
    return row


def judged(name, against, mean, p_holm, **changes):
    row = {"arm_a": name, "arm_b": against, "metric": "macro_f1", "folds": "query folds"}
    row |= {"n_folds": 10, "n_tests": 6, "t": 3.0, "mean_difference": mean, "difference": mean}
    return row | {"p": p_holm / 6, "p_holm": p_holm} | changes


def test_a_clear_lead_is_called_better_and_a_small_one_is_not():
    rows = [arm("best", 0.5), arm("random", 0.45)]
    clear = versus("best", MAJORITY, 0.4, 0.1)
    small = versus("best", "random", 0.05, 0.1)
    text = " ".join(headline(rows, [clear, small]))
    assert "best has the highest macro-F1 of 2 arms: macro-F1 0.500 [0.450, 0.550]" in text
    assert "+0.400 [+0.300, +0.500] in macro-F1" in text
    assert "majority label (b) gives macro-F1 0.100 and accuracy 0.100" in text
    assert text.count("better in macro-F1") == 1
    assert "contains 0, so these queries do not tell the two apart" in text
    assert "likely to be somewhat overstated" in text
    assert "the two intervals overlap" in text


@pytest.mark.parametrize(
    ("p_holm", "words"),
    [
        (0.03, "better in macro-F1 (paired t-test over 10 query folds, p 0.0050, after Holm's"),
        (0.06, "not told apart in macro-F1 (paired t-test over 10 query folds"),
    ],
)
def test_a_verdict_goes_by_the_corrected_test_and_not_by_the_bootstrap(p_holm, words):
    rows = [arm("best", 0.5), arm("random", 0.45)]
    row = versus("best", "random", 0.05, 0.01)
    accuracy = {"arm_a": "best", "arm_b": "random", "metric": "accuracy", "mcnemar_p_holm": 2e-6}
    tests = [judged("best", "random", 0.05, p_holm), accuracy]
    text = " ".join(headline(rows, [row], tests))
    assert words in text
    assert f"correction for 6 tests {p_holm:.4f})" in text
    assert "McNemar's test gives p <0.0001 after Holm." in text
    assert "lies above 0" not in text
    assert "Neither the best arm nor those it is compared with were repeated" in text


def test_folds_that_disagree_with_all_queries_together_give_no_verdict():
    """A rare label that lies in one fold turns the mean of the folds round."""
    test = judged("best", "random", -0.212, 0.008, difference=0.168)
    rows = [arm("best", 0.5), arm("random", 0.45)]
    text = " ".join(headline(rows, [versus("best", "random", 0.168, 0.2)], [test]))
    assert "not told apart in macro-F1, because the folds (-0.212 on average)" in text
    assert "(+0.168) disagree" in text
    assert "worse in macro-F1" not in text


def test_a_difference_below_the_noise_floor_is_no_reason_to_prefer_an_arm():
    row = versus("best", "random", 0.05, 0.01) | {"macro_f1_floor": 0.06}
    tests = [judged("best", "random", 0.05, 0.01)]
    rows = [arm("best", 0.5), arm("random", 0.45)]
    below = " ".join(headline(rows, [row | {"macro_f1_below_floor": True}], tests))
    assert "not above the noise floor of 0.060" in below
    assert "unknown" not in below
    above = " ".join(headline(rows, [row | {"macro_f1_below_floor": False}], tests))
    assert "noise floor" not in above


def test_equal_fold_differences_are_judged_by_the_sign_flip_test():
    test = judged("best", "random", 0.1, 0.012, t=None)
    text = " ".join(headline([arm("best", 0.5)], [versus("best", "random", 0.1, 0.05)], [test]))
    assert "better in macro-F1 (sign-flip test over 10 query folds" in text


def test_losing_to_the_majority_baseline_is_said_plainly():
    text = " ".join(headline([arm("only", 0.05)], [versus("only", MAJORITY, -0.2, 0.1)]))
    assert "only is the only arm" in text
    assert "worse in macro-F1, the 95% interval lies below 0" in text
    assert "overstated" not in text


def test_random_selection_as_the_best_arm_is_said_plainly():
    rows = [arm("random", 0.5) | {"stage1": "random"}, arm("clever", 0.4)]
    text = " ".join(headline(rows, [versus("clever", "random", -0.1, 0.05)]))
    assert "The best arm itself selects at random" in text


def test_figures_are_readable():
    assert [plain(x) for x in (None, 0.12345, 0.0, 2e-5, 1234567, 1234.5, "x", {"a": 2})] == [
        *("-", "0.123", "0.000", "2.0e-05", "1,234,567", "1,234.500", "x", "a: 2")
    ]


def test_keys_that_no_heading_knows_are_shown_after_the_known_ones():
    table = keyed_table(
        [{"z": 1, "n": 2, "table": "corpus", "gone": None}], {"table": "T", "n": "N"}
    )
    assert table.headings == ["T", "N", "z"]
    assert [cell.text for cell in table.rows[0]] == ["corpus", "2", "1"]


def test_every_order_and_what_the_retriever_learned_stand_on_the_page(page):
    orders = part_of(page, "orders")
    assert orders.count("<figure>") == 1
    assert "Of random+knn, orders are a draw" in orders
    # An arm itself and its orders, a row each.
    assert "Every order (171 rows)" in orders
    assert "helpful: 123; unhelpful: 118" in part_of(page, "epr")
    tables = page_tables(example_model())
    assert len(tables["orders-1"].rows) == 171
    assert len(tables["order_spread-1"].rows) == 6


@pytest.mark.parametrize("kind", ["query folds", "selection folds"])
def test_the_page_says_what_the_folds_are(kind):
    model = example_model()
    shown = replace(model, paired_tests=model.paired_tests.assign(folds=kind))
    assert kind.capitalize() in part_of(build_page(shown, []), "tests")
