import pytest

from jobs.reporting.model import ReportModel
from jobs.reporting.page import build_page
from tests.jobs.browser import inspect_page
from tests.jobs.report_example import example_model


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build_page(example_model()), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_is_quiet_asks_for_nothing_and_shows_its_pictures(page, width):
    facts = inspect_page(page, width=width)
    assert facts.console_errors == []
    assert facts.requests == []
    assert len(facts.images) == 6
    assert all(image["width"] > 0 and image["shown"] > 0 for image in facts.images)
    assert all(image["alt"] for image in facts.images)
    assert facts.overflow_px == 0
    assert "dual-div+knn has the highest macro-F1 of 5 arms" in facts.text
    assert "stones <script>alert(1)</script>" in facts.text


def test_an_empty_page_is_quiet_too(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(build_page(ReportModel("nothing")), encoding="utf-8")
    facts = inspect_page(path, width=400)
    assert (facts.console_errors, facts.requests, facts.images) == ([], [], [])
    assert facts.overflow_px == 0


def test_the_inspection_itself_sees_scripts_requests_and_broken_pictures(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<script>console.error('loud'); nothing.at.all</script>"
        "<img src='http://127.0.0.1:9/x.png'><div style='width:9999px'>wide</div>"
    )
    facts = inspect_page(path)
    assert "loud" in facts.console_errors
    assert any("Uncaught" in text for text in facts.console_errors)
    assert facts.requests == ["http://127.0.0.1:9/x.png"]
    assert facts.images[0]["width"] == 0
    assert facts.overflow_px > 8000


def test_a_script_or_a_picture_that_slipped_in_would_be_stopped_by_the_policy(tmp_path, page):
    html = page.read_text(encoding="utf-8")
    added = "<script>document.title = 'owned'</script><img src='http://127.0.0.1:9/x.png'></body>"
    path = tmp_path / "slipped.html"
    path.write_text(html.replace("</body>", added), encoding="utf-8")
    facts = inspect_page(path)
    assert sum("Content Security Policy" in text for text in facts.console_errors) == 2
