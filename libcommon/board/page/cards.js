/* ---- cards ---- */
const cards = {};
function card(id, title, wide, tools = [], into = $("cards")) {
  const box = make("div"), save = make("button", { title: "save as SVG", "aria-label": title + ": save as SVG" }, "SVG"), head = make("div", {}, make("h2", {}, title), ...tools, save), key = make("div", { class: "key" });
  const s = make("section", { id: "card-" + id, class: wide ? "wide" : "" }, head, box, key);
  save.hidden = id === "answers" || id === "events"; /* tables */
  save.onclick = () => saveSvg(box.querySelector("svg"), id);
  into.append(s);
  return cards[id] = { box, key, section: s };
}
function svgText(root) {
  const copy = root.cloneNode(true), style = getComputedStyle(document.documentElement);
  let text;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", root.viewBox.baseVal.width);
  copy.querySelectorAll("text").forEach(t => { t.setAttribute("font-family", "sans-serif"); t.setAttribute("font-size", 11); t.setAttribute("fill", "var(--dim)") });
  text = new XMLSerializer().serializeToString(copy);
  return text.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim());
}
function saveSvg(root, name) {
  if (!root) return;
  const a = make("a", { href: URL.createObjectURL(new Blob([svgText(root)], { type: "image/svg+xml" })), download: name + ".svg" });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}
const legend = (box, list) => box.replaceChildren(...list.map(([name, c]) => make("span", {}, Object.assign(make("i"), { style: "background:" + c }), name)));
const shown = () => state.runs.filter(r => state.on[r.id]);
const name = r => state.runs.length > 1 ? r.name + " " : "";

function drawCurve(id, title, keys, always) {
  const a = +$("smooth").value, lines = [], used = new Set();
  for (const r of shown()) for (const key of keys) {
    const s = state.data.get(r.id)?.[key];
    if (!s || !s.x.length) continue;
    const dots = ["eval_loss", "top1", "top5"].includes(key) || s.x.length === 1, soft = a > 0 && !dots && id !== "lr" && id !== "rss_bytes";
    lines.push({ name: name(r) + key, color: color(r.id), dashed: key !== keys[0], x: s.x, y: soft ? smooth(s.m, a) : s.m, band: s.least && !dots ? [s.least, s.most] : null, dots });
    used.add(key);
  }
  const [solid, ...dashed] = keys.filter(k => used.has(k));
  cards[id].key.textContent = solid === keys[0] && dashed.length ? `solid: ${solid}; dashed: ${dashed.join(", ")}` : "";
  cards[id].section.hidden = !lines.length && !always;
  if (!cards[id].section.hidden)
    draw(cards[id].box, lines, { title, unit: unit(keys[0]), log: $("log").checked && id !== "mfu", height: id === "loss" ? 300 : 200 });
}
/* Metrics that runs have and no picture above shows: asked for and drawn once the section is open. */
const further = () => [...new Set(state.runs.flatMap(r => r.keys))].filter(k => !placed.has(k)).sort();
function drawFurther() {
  const box = $("further"), keys = further();
  box.hidden = !keys.length;
  box.querySelector("summary").textContent = `Further metrics (${keys.length})`;
  for (const key of box.open ? keys : []) {
    if (!cards["key-" + key]) card("key-" + key, key, false, [], box.querySelector("div"));
    drawCurve("key-" + key, key, [key]);
  }
}
function drawCurves() {
  for (const [id, title, keys] of curves) drawCurve(id, title, keys, id === "loss");
  drawFurther();
}
const chosen = () => state.runs.find(r => r.id === +$("one").value);
function drawParts() {
  const d = state.parts, base = d?.compute_s;
  cards.parts.key.replaceChildren();
  if (!base?.x.length) { draw(cards.parts.box, [], { title: "Step time breakdown", none: chosen()?.lines ? "no step times in these metrics" : "" }); return }
  let sum = base.x.map(() => 0);
  const lines = [], names = [];
  parts.forEach(([key, label], i) => {
    const s = d[key];
    if (!s || !s.m.some(v => v > 0)) return;
    sum = sum.map((v, k) => { const j = nearest(s.x, base.x[k]); return v + (s.m[j] || 0) });
    lines.push({ name: label, color: color(i), x: base.x, y: sum });
    names.push([label, color(i)]);
  });
  draw(cards.parts.box, lines, { title: "Step time breakdown", stack: true, unit: v => short(v) + " s" });
  legend(cards.parts.key, names);
}
/* Colour of a share between 0 and 1: blue, white or black, red. */
const heat = v => `hsl(${v < 0.5 ? 220 : 10} ${Math.abs(v - 0.5) * 170}% ${50 + (0.5 - Math.abs(v - 0.5)) * 70}%)`;
function drawSkew() {
  const list = (state.details?.lines || []).filter(l => l.ranks?.every(v => v !== null)), box = cards.skew.box;
  box.replaceChildren();
  legend(cards.skew.key, []);
  if (!list.length) { box.append(make("div", { class: "none" }, /^card/.test(section.value) ? "no GPUs in these metrics" : state.parts?.compute_s?.x.length ? "needs dt-train --details STEPS" : "no step times in these metrics")); return }
  const n = list[0].ranks.length, w = Math.max(box.clientWidth, 280), each = Math.max(4, Math.min(22, 260 / n)), L = 58, B = 22, h = n * each + B;
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, height: h, role: "img", "aria-label": "Time of each rank relative to the median of all ranks" });
  const step = (w - L - 10) / list.length;
  list.forEach((l, i) => {
    const sorted = [...l.ranks].sort((a, b) => a - b), mid = (sorted[n >> 1] + sorted[(n - 1) >> 1]) / 2 || 1e-12;
    l.ranks.forEach((v, k) => {
      const share = Math.max(0, Math.min(1, 0.5 + Math.log2(v / mid) / 2));
      const cell = svg("rect", { x: (L + i * step).toFixed(2), y: k * each, width: (step + 0.3).toFixed(2), height: each - 0.5, fill: heat(share) });
      cell.onpointermove = e => tip(e, `step ${l.step}  rank ${k}  ${unit(section.value)(v)}  ${(v / mid).toFixed(2)} times the median`);
      cell.onpointerleave = () => tip(null);
      root.append(cell);
    });
  });
  for (let k = 0; k < n; k += Math.ceil(14 / each)) root.append(svg("text", { x: L - 6, y: k * each + each / 2 + 4, "text-anchor": "end" }, "rank " + k));
  root.append(svg("text", { x: L, y: h - 6 }, "step " + list[0].step), svg("text", { x: w - 10, y: h - 6, "text-anchor": "end" }, "step " + list[list.length - 1].step));
  box.append(root);
  legend(cards.skew.key, [["half the median", heat(0)], ["the median", heat(0.5)], ["twice the median", heat(1)]]);
}
function drawUnits() {
  const last = (state.details?.lines || []).filter(l => l.units?.length), lines = [], box = cards.units;
  box.section.hidden = !last.length;
  if (!last.length) return;
  last[0].units.forEach((u, i) => lines.push({ name: u.unit, color: `hsl(${i * 300 / last[0].units.length} 65% 50%)`, x: last.map(l => l.step), y: last.map(l => l.units[i]?.grad_norm ?? null) }));
  draw(box.box, lines, { title: "Gradient norm by unit", log: true });
  legend(box.key, lines.slice(0, 12).map(l => [l.name, l.color]));
}
function drawMemory() {
  const r = chosen(), list = r?.categories, box = cards.memory.box;
  box.replaceChildren();
  cards.memory.key.textContent = "";
  if (!list?.length) { box.append(make("div", { class: "none" }, "no memory plan in these metrics")); return }
  const names = Object.keys(r.memory_over_step?.bytes || {}), total = list.reduce((s, c) => s + c.bytes, 0), w = Math.max(box.clientWidth, 280), h = list.length * 22 + 8;
  const root = svg("svg", { viewBox: `0 0 ${w} ${h}`, height: h, role: "img", "aria-label": "Peak of the memory plan by category" });
  list.forEach((c, i) => {
    const y = 4 + i * 22, room = w - 150 - 90;
    root.append(svg("text", { x: 142, y: y + 13, "text-anchor": "end" }, c.name), svg("rect", { x: 150, y: y + 3, height: 13, width: Math.max(1, c.bytes / total * room), rx: 2, fill: colors[(names.includes(c.name) ? names.indexOf(c.name) : i) % colors.length] }),
      svg("text", { x: 156 + c.bytes / total * room, y: y + 13 }, bytes(c.bytes)));
  });
  box.append(root);
  cards.memory.key.textContent = `peak ${bytes(r.newest.peak_bytes ?? total)} on the rank that needs most`;
}
function drawOver() {
  const m = chosen()?.memory_over_step, lines = [], names = [], box = cards.over, n = m?.phase?.length || 0;
  box.section.hidden = n < 2;
  if (n < 2) return;
  let sum = m.phase.map(() => 0);
  Object.entries(m.bytes).forEach(([what, list], i) => {
    sum = sum.map((v, k) => v + (list[k] || 0));
    lines.push({ name: what, color: color(i), x: m.phase.map((_, k) => k), y: sum });
    names.push([what, color(i)]);
  });
  draw(box.box, lines, { title: "Memory plan over a step", stack: true, still: true, unit: bytes, at: k => m.phase[Math.round(k)] ?? "" });
  legend(box.key, names);
}
function drawAnswers() {
  const list = [...(chosen()?.answers || [])].reverse(), box = cards.answers;
  box.section.hidden = !list.length;
  box.box.replaceChildren(make("div", { class: "scroll" }, make("table", {}, ...list.map(a => make("tr", {}, make("td", {}, "step " + (a.step ?? "")),
    make("td", {}, a.reward === null || a.reward === undefined ? "no reward" : "reward " + short(a.reward)), make("td", { class: "prompt" }, a.prompt ?? ""), make("td", { class: "text" }, a.text ?? ""))))));
}
function drawTimeline() {
  const t = state.timeline, box = cards.timeline.box, names = { F: ["forward", "#2563eb"], B: ["backward", "#15803d"], W: ["weight gradients", "#0891b2"], w: ["waiting for a stage", "#e11d48"], m: ["communication", "#ca8a04"], d: ["data", "#c026d3"], o: ["optimizer", "#6366f1"], s: ["checkpoint", "#ea580c"] };
  cards.timeline.section.hidden = !t?.spans.length;
  if (!t?.spans.length) return;
  const ranks = [...new Set(t.spans.map(s => s[0]))].sort((a, b) => a - b), w = Math.max(box.clientWidth, 280), L = 58, each = Math.max(10, Math.min(30, 300 / ranks.length)), h = ranks.length * each + 24;
  const X = us => L + us / t.us * (w - L - 10), root = svg("svg", { viewBox: `0 0 ${w} ${h}`, height: h, role: "img", "aria-label": "Timeline of one step, by rank" });
  const order = "FBWdmwos";
  for (const [rank, kind, ts, dur, mb, chunk] of [...t.spans].sort((a, b) => order.indexOf(a[1]) - order.indexOf(b[1]))) {
    const y = ranks.indexOf(rank) * each, inside = "dmw".includes(kind), width = X(ts + dur) - X(ts);
    if (inside && width < 0.3) continue;
    const r = svg("rect", { x: X(ts).toFixed(2), y: inside ? y + each * 0.55 : y, width: Math.max(width, 0.4).toFixed(2), height: inside ? each * 0.4 : each - 2, fill: names[kind][1], stroke: "var(--card)", "stroke-width": 0.5 });
    r.onpointermove = e => tip(e, `rank ${rank}  ${names[kind][0]}${mb >= 0 ? " of microbatch " + mb + ", chunk " + chunk : ""}  ${(dur / 1e3).toFixed(3)} ms`);
    r.onpointerleave = () => tip(null);
    root.append(r);
    if (mb >= 0 && width > 16) root.append(svg("text", { x: X(ts) + width / 2, y: y + each * 0.42, "text-anchor": "middle", style: "fill:#fff;pointer-events:none" }, mb));
  }
  ranks.forEach((rank, i) => root.append(svg("text", { x: L - 6, y: i * each + each / 2 + 4, "text-anchor": "end" }, "rank " + rank)));
  for (const v of ticks(0, t.us / 1e3, Math.min(6, w / 70))) {
    const last = X(v * 1e3) > w - 24; /* its second half would be cut */
    root.append(svg("text", { x: last ? w - 1 : X(v * 1e3), y: h - 6, "text-anchor": last ? "end" : "middle" }, short(v) + " ms"));
  }
  box.replaceChildren(root);
  const used = new Set(t.spans.map(s => s[1]));
  legend(cards.timeline.key, Object.entries(names).filter(([k]) => used.has(k)).map(([, v]) => v).concat([["step " + t.step, "transparent"]]));
}
function drawEvents() {
  const r = chosen(), box = cards.events.box, list = [...(r?.events || [])].reverse();
  cards.events.section.hidden = !list.length;
  const said = v => typeof v === "object" ? JSON.stringify(v) : typeof v === "number" && !Number.isInteger(v) ? String(+v.toPrecision(4)) : v;
  const rest = e => Object.entries(e).filter(([k]) => !["event", "step", "time", "run_id"].includes(k)).map(([k, v]) => k + " " + said(v)).join(", ");
  const whole = t => t.length > 300 ? t.slice(0, 300) + " ..." : t;
  box.replaceChildren(make("div", { class: "scroll" }, make("table", {}, ...list.map(e => make("tr", {}, make("td", { class: "short" }, e.time ? new Date(e.time * 1000).toLocaleTimeString() : ""),
    make("td", { class: "short" }, "step " + short(e.step)), make("td", { class: "short" }, e.event), make("td", {}, whole(rest(e))))))));
}
function drawOne() { drawParts(); drawSkew(); drawUnits(); drawMemory(); drawOver(); drawTimeline(); drawAnswers(); drawEvents(); document.documentElement.dataset.drawn = state.version; performance.mark("drawn") }
function drawAll() { drawCurves(); drawOne() }
/* SPDX-License-Identifier: Apache-2.0 */
