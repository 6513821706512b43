"""board-page.py URL METRICS [PICTURES]: tests dt-board's page in a browser. METRICS is the metrics file of a
run that the page shows; this test appends to it. PICTURES: a folder for screenshots at two widths, light and
dark."""
import json
import os
import sys
import xml.dom.minidom

from browser import Browser

url, metrics = sys.argv[1], sys.argv[2]
pictures = sys.argv[3] if len(sys.argv) > 3 else None


def shot(b, name):
    if pictures:
        b.screenshot(os.path.join(pictures, name + ".png"))


def lines(b, card):
    return b.js(f"document.querySelectorAll('#card-{card} path[stroke-width]').length")


with Browser(width=1300, height=1800) as b:
    b.open(url)
    b.until("document.documentElement.dataset.drawn && document.getElementById('live').className === 'on'")
    shot(b, "board-light")
    runs = b.js("state.runs.length")
    assert runs == 2, runs
    # one curve per run, and the evaluation loss of one of them
    assert lines(b, "loss") == 3, lines(b, "loss")
    assert b.js("document.querySelectorAll('#card-skew rect').length") >= 4
    assert b.js("document.querySelectorAll('#card-timeline rect').length") > 8
    assert b.js("document.querySelectorAll('#card-parts path').length") >= 3
    assert "rollback" in b.js("document.querySelector('#card-events').textContent")
    # the page shows the values of the file: the newest raw loss at the right end
    last = [json.loads(line) for line in open(metrics, encoding="utf-8") if '"loss"' in line][-1]
    assert abs(b.js("state.data.get(state.runs.find(r => r.name.includes('mine')).id).loss.m.at(-1)") - last["loss"]) < 1e-4
    # each button has a label of its own, which says what it saves
    names = b.js("[...document.querySelectorAll('#cards button')].map(e => e.getAttribute('aria-label') || e.textContent)")
    assert len(names) > 8 and len(set(names)) == len(names), names
    # the axis of steps so large that adding 1 does not change them
    assert 2 <= b.js("ticks(1e300, 1e300, 5).length + ticks(1e17, 1e17 + 64, 5).length") < 60
    assert b.js("ticks(0, 10, 5).join()") == "0,2,4,6,8,10"
    # no two ticks of an axis read the same; sizes have ticks at round numbers of their unit; a logarithmic axis
    # within a decade has ticks too
    assert b.js("labels([123000, 123100, 123200], short).join()") == "123.0 k,123.1 k,123.2 k"
    assert b.js("labels([2.3011, 2.30115, 2.3012], short).join()") == "2.3011,2.30115,2.3012"
    assert b.js("labels(sizeTicks(20e6, 41e6), bytes).join()") == "20 MiB,25 MiB,30 MiB,35 MiB"
    assert b.js("labels(sizeTicks(31.2 * 2 ** 30, 31.3 * 2 ** 30), bytes).join()") == "31.20 GiB,31.25 GiB,31.30 GiB"
    assert b.js("labels(sizeTicks(3000, 2 ** 30, true), bytes).join()") == "4.0 KiB,64 KiB,1.0 MiB,16 MiB,256 MiB"
    assert b.js("logTicks(2.2, 4.8).join()") == "3,4" and b.js("logTicks(0.02, 90).join()") == "0.1,1,10"
    assert b.js("""[...document.querySelectorAll('#cards svg')].every(s => { const t = [...s.querySelectorAll("text[text-anchor='end']")].map(e => e.textContent); return new Set(t).size === t.length })""")
    assert b.js("cards.loss.key.textContent") == "solid: loss; dashed: eval_loss"
    # shares are percentages; what a run lacks is said, and nothing of another run stays
    assert b.js("percent(0.25) + unit('mfu')(0.5) + bytes(0)") == "25%50%0 B"
    assert b.js("[...document.querySelectorAll('#card-skew rect')].length") >= 4
    kept = b.js("JSON.stringify(state.runs)")
    b.js("state.runs.forEach(r => { r.categories = []; r.events = [{ event: 'books', goodput: 0.44331270150003776 }] }); state.parts = null; state.details = null; drawOne()")
    assert b.js("cards.memory.key.textContent + cards.parts.key.textContent") == ""
    assert b.js("cards.skew.box.textContent + cards.parts.box.textContent") == "no step times in these metrics" * 2
    assert b.js("cards.events.box.textContent") == "step -booksgoodput 0.4433"
    # as many colours as a memory plan can have categories
    assert b.js("new Set(colors).size") >= 13
    # with two ranks, the median is between them
    b.js("state.details = { lines: [{ step: 1, ranks: [1, 3] }] }; drawSkew()")
    fills = b.js("[...document.querySelectorAll('#card-skew rect')].map(e => e.getAttribute('fill')).join()")
    assert fills == b.js("[heat(0), heat(0.5 + Math.log2(1.5) / 2)].join()"), fills
    b.js(f"state.runs = {kept}; loadOne()")
    # hide one run
    b.click("#runs input")
    b.until("document.querySelectorAll('#card-loss path[stroke-width]').length < 3")
    b.click("#runs input")
    # live update: append a line
    version = b.js("state.version")
    with open(metrics, "a", encoding="utf-8") as f:
        answer = {"prompt": "12+30=", "text": "<42>", "reward": 0.5}
        f.write(json.dumps(dict(last, step=last["step"] + 1, loss=1.25, answer=answer)) + "\n")
    b.until(f"state.version > {version} && document.documentElement.dataset.drawn > {version}")
    b.until("state.data.get(state.runs.find(r => r.name.includes('mine')).id).loss.m.at(-1) === 1.25")
    assert b.js("document.querySelector('#card-answers tr').textContent") == f"step {last['step'] + 1}reward 0.512+30=<42>"
    assert b.js("document.querySelectorAll('#card-over path').length") >= 4
    # keys without a chart of their own are below, collapsed, and are drawn only when expanded
    assert not b.js("document.getElementById('further').hidden")
    assert b.js("document.querySelectorAll('#further section').length") == 0
    b.click("#further summary")
    b.until("document.querySelectorAll('#further svg').length > 3")
    found = b.js("[...document.querySelectorAll('#further section')].map(e => e.id)")
    assert "card-key-step_s" in found and "card-key-loss" not in found and "card-key-step" not in found, found
    with open(metrics, "a", encoding="utf-8") as f:
        f.write(json.dumps(dict(last, step=last["step"] + 2, loss=1.25, flat_groups=0.75)) + "\n")
    b.until("!!document.querySelector('#card-key-flat_groups svg')")
    assert b.js("state.data.get(state.runs.find(r => r.name.includes('mine')).id).flat_groups.m.at(-1)") == 0.75
    b.js("document.getElementById('further').open = false, scrollTo(0, 0)")
    # smoothing and the logarithmic axis redraw the chart
    before = b.js("document.querySelector('#card-loss path[stroke-width]').getAttribute('d')")
    b.js("smooth_ = document.getElementById('smooth'), smooth_.value = 0, smooth_.oninput()")
    assert before != b.js("document.querySelector('#card-loss path[stroke-width]').getAttribute('d')")
    # zoom into a range by dragging the mouse, then reset the zoom
    r = b.js("(() => { const r = document.querySelector('#card-loss svg').getBoundingClientRect(); return [r.x, r.y, r.width] })()")
    for kind, x in (("mousePressed", 0.4), ("mouseMoved", 0.6), ("mouseReleased", 0.8)):
        b.call("Input.dispatchMouseEvent", type=kind, x=r[0] + x * r[2], y=r[1] + 60, button="left", clickCount=1)
    b.until("state.from !== null && !document.getElementById('all').hidden")
    b.click("#all")
    b.until("state.from === null")
    # an exported SVG is complete by itself: valid XML, no CSS variable of the page left
    text = b.js("svgText(document.querySelector('#card-loss svg'))")
    assert "var(" not in text
    assert xml.dom.minidom.parseString(text).documentElement.tagName == "svg"
    b.click("#theme")
    assert b.js("document.documentElement.dataset.theme") == "dark"
    shot(b, "board-dark")
    assert b.complaints() == [], b.complaints()
with Browser(width=390, height=1600, phone=True, dark=True) as b:
    b.open(url)
    b.until("document.documentElement.dataset.drawn")
    assert b.js("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than a phone"
    # charts that are still being laid out move the elements below them
    b.js("document.querySelector('#further summary').click()")
    b.until("document.querySelectorAll('#further svg').length > 3")
    assert b.js("document.documentElement.scrollWidth <= innerWidth"), "further metrics are wider than a phone"
    shot(b, "board-phone")
    assert b.complaints() == [], b.complaints()
# SPDX-License-Identifier: Apache-2.0
