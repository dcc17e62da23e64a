"""What tests of pages look for: sections, data for scripts, and names that would do harm if they were not escaped."""

import json
import re

NASTY = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'


def island(page, name):
    """Data for a script of the page."""
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


def sections(page):
    return re.findall(r'<section id="([\w-]+)"', page)


def assert_harmless(page):
    """Names stay text, and the page asks for nothing."""
    assert "<script>window.hacked" not in page and "<img src=x" not in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page.split("<script>")[0])
