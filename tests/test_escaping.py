"""Text of strangers in a terminal, a spreadsheet, a model card."""

import csv
import io
import re
from pathlib import Path

import pytest

from stepnet import UserError
from stepnet.escaping import echo, for_csv, for_markdown, for_terminal, markdown_code
from stepnet.files import printable

COMMANDS = Path(__file__).parent.parent / "src" / "stepnet" / "commands"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lm_resnet20, Größe ± 1 %", "lm_resnet20, Größe ± 1 %"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b]0;title\x07\x1b[31mred", r"\x1b]0;title\x07\x1b[31mred"),
        ("a\rb\x9b31m\x08", r"a\rb\x9b31m\x08"),
        ("right\u202eleft", r"right\u202eleft"),
        ("not UTF-8: \udcff", r"not UTF-8: \udcff"),
    ],
)
def test_a_terminal_gets_text_and_no_commands(text, shown, capsys):
    assert for_terminal(text) == shown
    echo(text)
    assert capsys.readouterr().out == shown + "\n"


def test_messages_and_paths_are_escaped():
    assert str(UserError("class '\x1b[2J' is\nodd")) == r"class '\x1b[2J' is odd"
    assert printable(Path("a\x1b[2J\nb\udcff")) == r"a\x1b[2J\nb\udcff"


def test_every_command_prints_by_echo():
    assert not [path for path in COMMANDS.glob("*.py") if re.search(r"^\s*print\(", path.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x","y")', "+1", "-1+1", "@SUM(A1)", "\tx", "\rx"])
def test_a_spreadsheet_finds_no_formula(text):
    file = io.StringIO(newline="")
    csv.writer(file).writerow(map(for_csv, [text, "plain", -1.5]))
    assert next(csv.reader(io.StringIO(file.getvalue(), newline=""))) == [f"'{text}", "plain", "-1.5"]


def test_markdown_finds_neither_html_nor_links():
    text = for_markdown("<script>x</script>\n\n# [a](javascript:b) `c` | d & \x1b")
    assert text == r"&lt;script&gt;x&lt;/script&gt; # \[a\](javascript:b) \`c\` \| d &amp; \\x1b"
    assert markdown_code("lm") == "`lm`" and markdown_code("a `` b\n<i>") == "``` a `` b <i> ```"
