"""The report: names are only names, lights follow the numbers, and a browser shows it without errors or overflow."""

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser

import jax
import numpy as np
import pandas as pd
import pytest

from sparse_lds.experiments.app.report import Results, write_report
from sparse_lds.experiments.app.report.lights import data_light, fit_light, forecast_light
from sparse_lds.experiments.app.report.network_svg import network
from sparse_lds.experiments.coverage import Coverage
from sparse_lds.experiments.labs import bin_labs, labs_from_frame
from sparse_lds.experiments.skill import Skill
from sparse_lds.inference import Constraints, Stop, compare_map_posterior, fit_map, sample_posterior
from sparse_lds.models import Laplace

NAMES = ["<script>alert(1)</script>", '$x_{ & "q']


class Page(HTMLParser):
    """The tags of a page, and the texts outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report on a small cohort whose tests and patients have names that are markup."""
    folder, rng = tmp_path_factory.mktemp("report"), np.random.default_rng(0)
    rows = [
        (f"<img src=x onerror=alert({n})>", 8.0 * t, name, rng.normal(10, 2))
        for n in range(6)
        for t in range(12)
        for name in NAMES
    ]
    frame = pd.DataFrame(rows, columns=["id", "time", "test", "value"])
    binned = bin_labs(labs_from_frame(frame), gaps="missing")
    binned = binned._replace(cohort=binned.cohort.standardize())
    options = {"constraints": Constraints.levels(), "priors": "weak", "max_iter": 50}
    fit = fit_map(binned.cohort, 2, Laplace(5.0), **options)
    posterior = sample_posterior(
        jax.random.key(0), binned.cohort, fit, num_warmup=40, num_samples=40, num_chains=2, num_predictive=2
    )  # fmt: skip
    names = [str(name) for name in binned.cohort.channels]
    comparison = compare_map_posterior(fit, posterior, names=names)
    results = Results(folder, binned, fit, posterior, comparison, "a <title> & more")
    return write_report(results)


@pytest.mark.interfaces
def test_names_are_only_names_and_nothing_is_fetched(page):
    text = page.read_text()
    found = Page(text)
    assert [tag for tag, _ in found.tags].count("script") == 1
    images = [attrs for tag, attrs in found.tags if tag == "img"]
    assert len(images) >= 6 and all(x["src"].startswith("data:image/svg+xml") for x in images)
    assert all(x["alt"].strip() for x in images)
    for _, attrs in found.tags:
        assert not any(name.startswith("on") for name in attrs)
        assert not re.match("(https?:)?//", attrs.get("src", "") + attrs.get("href", ""))
    said = " ".join(found.texts)
    assert all(name in said for name in NAMES) and "a <title> & more" in said
    assert (
        "No patient was held out" in said
    )  # nothing is claimed of forecasts that were not compared


def test_the_verdict_on_each_entry_is_in_the_table(page):
    rows = re.findall(r"<tr><td data-key=.*?</tr>", page.read_text())
    words = [r for r in rows if any(w in r for w in ("supported", "undecided", "prior only"))]
    assert len(words) >= 4


@pytest.mark.parametrize("l", [1, 2, 6, 30])
def test_circles_of_the_network_do_not_touch_and_arrows_end_at_them(l):
    from made_posteriors import fit_of, posterior_of

    A = 0.4 * np.ones((l, l))
    fit, rng = fit_of(A), np.random.default_rng(0)
    draws = A + 0.02 * rng.normal(size=(2, 20, l, l))
    drawn = network(compare_map_posterior(fit, posterior_of(draws, fit, prior=Laplace(2.0))))
    at = np.array([(node.x, node.y) for node in drawn["nodes"]])
    gaps = np.linalg.norm(at[:, None] - at, axis=-1)[~np.eye(l, dtype=bool)]
    assert (gaps > 2 * drawn["radius"]).all() and len(drawn["edges"]) == l * (l - 1)
    for edge in drawn["edges"]:
        tip = np.array([float(x) for x in edge.path.split()[-2:]])
        near = np.linalg.norm(at - tip, axis=1).min()
        assert drawn["radius"] <= near + 0.2 <= drawn["radius"] + 6


def skill(model, best, p):
    table = pd.DataFrame(
        {"error": [model, best], "skill": [np.nan, 1 - model / best], "p": [np.nan, p]}
    )
    return Skill(table.set_axis(["this model", "VAR(1)"]), pd.DataFrame())


def test_the_light_of_forecasts_is_green_only_for_a_sure_gain():
    right = Coverage(np.random.default_rng(0).uniform(size=(300, 4, 1)))
    narrow = Coverage(np.where(right.ranks < 0.5, 0.01, 0.99))
    for given, level in {
        (0.5, 0.6, 0.01): "good",
        (0.5, 0.6, 0.2): "care",
        (0.6, 0.5, 0.2): "care",
        (0.6, 0.5, 0.01): "bad",
    }.items():
        assert forecast_light(skill(*given), right).level == level
    light = forecast_light(skill(0.5, 0.6, 0.01), narrow)
    assert light.level == "care" and "too narrow: those of 90% cover 0%" in light.sentence
    assert forecast_light(None, right).level == "unknown"


def test_the_lights_of_data_and_fit(small_cohort):
    from made_posteriors import fit_of

    from sparse_lds.experiments.labs import Binned

    def light(cohort, dropped=0):
        found = Binned(cohort, np.asarray(cohort.mask), 8.0, (), "8 hours", dropped=dropped)
        return data_light(found)

    assert light(small_cohort(30)).level == "good"
    assert light(small_cohort(12)).level == "care"
    assert light(small_cohort(30), dropped=40).level == "care"
    assert light(small_cohort(30, T=30, gaps=0.9)).level == "care"
    assert light(small_cohort(30).take([0])).level == "bad"
    fit = fit_of(np.eye(2))._replace(reason="converged")
    assert fit_light(fit).level == "good"
    assert fit_light(fit._replace(warnings=("R is small",))).level == "care"
    assert fit_light(fit._replace(stop=Stop.MAX_ITER)).level == "care"
    assert fit_light(fit._replace(stop=Stop.DRIFT)).level == "bad"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_it_without_errors_or_overflow(page, tmp_path, width):
    """In a frame of that width: a window of a browser without a screen has at least 500."""
    trap = (
        '<head><script>addEventListener("error", (e) => { window.failed = e.message; });</script>'
    )
    inner = html.escape(page.read_text().replace("<head>", trap))
    probe = """<script>onload = () => {
      const w = document.getElementById("f").contentWindow, all = (q) => w.document.querySelectorAll(q);
      all("details").forEach((d) => { d.open = true; });
      all("th button").forEach((b) => b.click());
      all("[data-words]").forEach((s) => s.dispatchEvent(new w.Event("focus")));
      const tip = w.document.getElementById("tip").textContent;
      document.title = [w.innerWidth, w.document.documentElement.scrollWidth, w.failed || 0, tip].join("|");
    }</script>"""
    frame = (
        f'<iframe id="f" style="width:{width}px;height:900px;border:0" srcdoc="{inner}"></iframe>'
    )
    (tmp_path / "page.html").write_text(f"<title></title>{probe}{frame}")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    flags += " --disable-background-networking --disable-component-update --dump-dom"
    done = subprocess.run(
        ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'user'}", "--window-size=1300,1000",
         f"file://{tmp_path / 'page.html'}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)[1]
    seen, scrolled, failed, tip = title.split("|")
    assert int(seen) == width and int(scrolled) <= width and failed == "0"
    assert "MAP" in tip and "CONSOLE" not in done.stderr
