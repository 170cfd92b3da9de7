"""An analysis as text, HTML, LaTeX and plain values."""

import json
import re
from html.parser import HTMLParser

import pytest

import stepnet
from stepnet import list_schemes


class Tags(HTMLParser):
    """What is open, and whether each tag is closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", list_schemes())
def test_every_scheme_in_every_form(name):
    found = stepnet.analyse(name)
    page = found._repr_html_()
    parser = Tags()
    parser.feed(page)
    assert parser.open == [] and page.count("$") % 2 == 0
    labels = re.findall(r"^  (\S.{0,17}\S)  ", str(found), re.MULTILINE)
    assert all(f">{label}</th>" in page for label in labels) and "modified equation" in labels
    values = json.loads(json.dumps(found.as_dict()))
    assert values["order"] == found.order and values["scheme"] == name
    assert all(line in str(found) for line in values["step"] if len(line) < 60)


def test_a_notebook_sees_typeset_equations():
    page = stepnet.analyse("lm")._repr_html_()
    assert r"$\displaystyle (1 + k) u&#x27; + (1 - k) \frac{\Delta t}{2} u&#x27;&#x27; = f$" in page
    assert "for -1 &lt; k &lt;= 1" in page
