"""The documentation's playground in Chromium: `make playground-test`. Figures of its speed are printed, and asserted by nothing."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import threading
from urllib.parse import urlsplit

import pytest

import chromium

SITE, pytestmark = chromium.SITE, chromium.NEEDS
FORM = "document.forms.playground"
STATUS = f"{FORM}.querySelector('[role=status]').textContent"
TASKS = ["connection", "rules", "picture", "audit", "lint"]
SETTINGS = [(width, dark) for width in (1280, 420) for dark in (False, True)]
FLAGS = {"input": "-b '*' -i '*' -o 5432", "to": "10.96.40.2", "port": "5432"}
EVIL = "<img src=x onerror=document.title=1><script>document.title=2</script>"


class Handler(http.server.SimpleHTTPRequestHandler):
    def send_head(self):
        if self.server.has_python or "/python/" not in self.path:
            return super().send_head()
        self.send_error(http.HTTPStatus.NOT_FOUND)
        return None

    def log_error(self, *_):
        """Nothing: what is missing is missing on purpose."""

    def log_request(self, code="-", size="-"):
        del size
        self.server.served.append((urlsplit(self.path).path, int(code)))


@contextlib.contextmanager
def serve(*, has_python=True):
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=SITE))
    found.served, found.has_python = [], has_python
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


@pytest.fixture(scope="module")
def server():
    with serve() as found:
        yield found


@pytest.fixture
def page(server, browser):
    """The browser at the playground, opened by a call with `address`, `width` and `dark`."""
    return Page(browser, home_of(server))


def home_of(server):
    return f"http://127.0.0.1:{server.server_port}/playground.html"


class Page:
    def __init__(self, browser, home):
        self.browser, self.home = browser, home

    def open(self, address="", **setting):
        self.browser.open(address or self.home, **setting)
        self.browser.wait(f"{FORM}.dataset.ready")
        return self

    def fill(self, **fields):
        for name, value in fields.items():
            self.browser.ask(f"{FORM}.elements[{json.dumps(name)}].value = {json.dumps(value)}")
        return self

    def start(self):
        self.browser.ask(f"{FORM}.requestSubmit()")
        return self

    def answers(self):
        """What each section says, once all are there."""
        self.browser.wait(f"!{FORM}.elements.ask.disabled")
        return self.browser.ask("Object.fromEntries([...document.querySelectorAll('[data-task]')].map((one) => [one.dataset.task, one.innerText]))")

    def figures(self):
        return self.browser.ask("Object.fromEntries([...document.querySelectorAll('[data-task]')].map((one) => [one.dataset.task, +one.dataset.took]))")


@pytest.mark.parametrize(("width", "dark"), SETTINGS)
def test_it_answers_without_a_horizontal_scroll_bar_and_readably(page, width, dark):
    found = page.open(width=width, dark=dark).fill(**FLAGS).start().answers()
    assert list(found) == TASKS
    assert "direct: goes out to 10.96.40.2:5432" in found["connection"]
    assert "remove 5432 from --istio-local-outbound-ports-exclude: captured" in found["connection"]
    assert "-A ISTIO_OUTPUT -p tcp -m tcp --dport 5432" in found["rules"]
    assert "tcp dport 5432 counter return" in found["rules"]
    assert "outbound ports that are excluded (configuration, port)" in found["audit"]
    ask = page.browser.ask
    assert ask("document.documentElement.scrollWidth <= innerWidth")
    assert ask("document.querySelector('[data-task=picture] img').naturalWidth > 300")
    assert ask("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    assert ask(CONTRASTS) == []
    assert not page.browser.errors


CONTRASTS = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255).map((one) => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
  const ground = (one) => { for (; one; one = one.parentElement) { const c = parse(getComputedStyle(one).backgroundColor); if (c.length === 3 || c[3] > .9) return c; } return [255, 255, 255]; };
  const over = (top, under) => top.slice(0, 3).map((one, place) => one * (top[3] ?? 1) + under[place] * (1 - (top[3] ?? 1)));
  const low = [];
  for (const one of document.querySelectorAll('.playground :is(label, legend, input, select, textarea, pre, .playground-verdict, [role=status], .playground-hint, button:not(:disabled), h3, h4, li)')) {
    const under = ground(one), [a, b] = [light(over(parse(getComputedStyle(one).color), under)), light(under)].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) low.push(`${one.tagName} ${one.className} ${((a + .05) / (b + .05)).toFixed(2)}`);
  }
  return [...new Set(low)];
})()"""


REFUSAL = """new Promise((resolve) => {
  addEventListener('securitypolicyviolation', (event) => resolve(event.blockedURI));
  fetch('http://192.0.2.1/').catch(() => setTimeout(() => resolve('nothing refused it'), 1000));
})"""


def test_it_asks_no_other_host_and_loads_python_only_when_it_is_asked(page, server):
    page.browser.requests.clear()
    page.open()
    own = page.home.rpartition("/")[0]
    assert not [one for one in page.browser.requests if "/python/" in one]
    page.fill(**FLAGS).start().answers()
    asked = page.browser.requests
    assert [one for one in asked if one.endswith("/python/packages.zip")]  # the worker's requests are seen
    assert not [one for one in asked if not one.startswith((f"{own}/", "data:", "blob:"))]
    assert page.browser.ask(REFUSAL) == "http://192.0.2.1/"  # by the page itself
    asked.clear()
    server.served.clear()
    page.open().fill(**FLAGS).start().answers()
    sent_again = [path for path, code in server.served if "/python/" in path and code != http.HTTPStatus.NOT_MODIFIED]
    assert not sent_again  # the browser has kept them


def test_the_check_of_contrasts_finds_what_cannot_be_read(page):
    page.open().browser.ask(f"{FORM}.querySelector('legend').style.color = '#999'")
    assert [one for one in page.browser.ask(CONTRASTS) if one.startswith("LEGEND")]


def test_the_keyboard_alone_leads_through_it(page):
    page.open()
    browser = page.browser

    def focus(name):
        for _ in range(60):
            if browser.ask("document.activeElement.name") == name:
                assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") != "none", f"{name} shows no focus"
                return
            browser.press("Tab")
        raise AssertionError(f"Tab never leads to {name}")

    browser.ask(f"{FORM}.elements.situation.scrollIntoView()")
    focus("situation")
    browser.press("ArrowDown")
    assert "istio-init" in browser.ask(f"{FORM}.elements.input.value")
    focus("to")
    browser.ask("document.activeElement.select()")
    browser.type("203.0.113.9")
    focus("ask")
    browser.press("Enter")
    assert "203.0.113.9:443" in page.answers()["connection"]
    assert "The connection: captured. 5 answers below" in browser.ask(STATUS)
    for _ in range(3):  # what can be scrolled can be reached
        browser.press("Tab")
    assert browser.ask("document.activeElement.tagName") in ("PRE", "DIV")
    unnamed = f"[...{FORM}.elements].filter((one) => 'labels' in one && one.type !== 'submit' && one.type !== 'button' && !one.labels.length).length"
    assert browser.ask(unnamed) == 0


def test_the_address_leads_to_the_same_answer(page):
    page.open().fill(**FLAGS).start().answers()
    address = page.browser.ask("location.href")
    assert "#1." in address
    assert page.open(address).browser.ask(f"{FORM}.elements.input.value") == FLAGS["input"]
    assert "direct: goes out to 10.96.40.2:5432" in page.start().answers()["connection"]
    for damaged in (f"{address[:-9]}", f"{page.home}#1.!!", f"{page.home}#1.AAAA"):
        assert "damaged" in page.open(damaged).browser.ask(STATUS)


def test_a_hostile_pod_is_text(page):
    name = json.dumps(EVIL)
    init = "{name: istio-init, args: [istio-iptables, -b, '*', -i, '*']}"
    pod = f"kind: Pod\nmetadata: {{name: {name}, annotations: {{a: {name}}}}}\nspec: {{containers: [{{name: {name}}}], initContainers: [{init}]}}\n"
    rules = f'*nat\n:OUTPUT ACCEPT [0:0]\n:EVIL - [0:0]\n-A OUTPUT -p tcp -m comment --comment "{EVIL}" -j EVIL\nCOMMIT\n'
    for text in (pod, rules, f"-b '{EVIL}'", EVIL):
        page.open().fill(input=text, to="10.0.0.1", port="80", other=text).start().answers()
        assert page.browser.ask("document.querySelectorAll('#playground-results :is(script, iframe, object, [onerror])').length") == 0
        assert page.browser.ask("document.querySelectorAll('#playground-results img').length") <= 1
        assert page.browser.ask("document.title").startswith("Try it here")
        assert page.browser.ask("document.documentElement.scrollWidth <= innerWidth")


def test_what_takes_too_long_can_be_stopped_and_what_follows_is_answered(page):
    init = "{name: istio-init, args: [istio-iptables, -b, '*', -i, '*', -o, '%d']}"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p%d}}\nspec: {{containers: [{{name: a}}], initContainers: [{init}]}}\n"
    pods = "---\n".join([pod % (number, number + 1) for number in range(18_000)])
    assert 2_800_000 < len(pods) < 4_000_000
    page.open().fill(**FLAGS).start().answers()
    page.fill(input=pods).start()
    page.browser.wait(f"{STATUS}.startsWith('Answering')")
    assert page.browser.runs("/playground/worker.mjs")
    page.browser.ask("scrollTo(0, 0)")  # the page itself still answers
    page.browser.ask(f"{FORM}.elements.stop.click()")
    assert "Stopped" in page.browser.ask(STATUS)
    page.browser.wait_for_end("/playground/worker.mjs")
    assert page.browser.ask("document.querySelectorAll('[data-task]').length") == 0
    assert "#" not in page.browser.ask("location.href") or len(page.browser.ask("location.hash")) < 40_000
    assert list(page.fill(**FLAGS).start().answers()) == TASKS
    page.fill(input="x" * 5_000_000).start()
    page.browser.wait(f"{STATUS}.startsWith('That is too long')")


def test_a_copy_that_was_built_without_python_says_so(browser):
    with serve(has_python=False) as server:  # of an address of its own, whose Python the browser cannot have kept
        page = Page(browser, home_of(server)).open().fill(**FLAGS).start()
        page.browser.wait(f"{STATUS}.startsWith('Python cannot be loaded')")
        assert page.answers() == {}


def test_yaml_that_expands_without_end_is_refused(page):
    bomb = "a0: &a0 [x, x]\n" + "".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)])
    assert "aliases expand to more than" in page.open().fill(input=bomb, to="10.0.0.1", port="80").start().answers()["connection"]


def test_two_pods_are_compared(page):
    found = page.open().fill(input="-b '*' -i '*'", other="-b '*' -i '*' -o 3306").start().answers()
    assert list(found) == ["compare", *TASKS[1:]]
    assert "TCP outbound on port 3306" in found["compare"]


def test_how_long_the_answers_take_once_python_is_loaded(page):
    page.open().fill(**FLAGS).start().answers()
    print()
    for number, title in enumerate(json.loads(page.browser.ask("fetch('playground/situations.json').then((reply) => reply.text())"))):
        select = f"{FORM}.elements.situation"
        page.browser.ask(f"{select}.value = {number}, {select}.dispatchEvent(new Event('change'))")
        page.start().answers()
        figures = page.figures()
        print(", ".join([f"{task} {took} ms" for task, took in figures.items()]), "|", title["title"])
        assert set(figures) >= {"rules", "audit"}
