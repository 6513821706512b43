/* ---- data ---- */
function listRuns() {
  const one = $("one").value;
  $("runs").replaceChildren(...state.runs.map(r => {
    const box = make("input", { type: "checkbox" }), n = r.newest;
    box.checked = state.on[r.id];
    box.onchange = () => { state.on[r.id] = box.checked; drawCurves() };
    return make("label", {}, box, Object.assign(make("i"), { style: "background:" + color(r.id) }), r.name, make("small", {}, `step ${short(n.step)}  loss ${short(n.loss)}` + (r.bad ? `  ${r.bad} unreadable lines` : "")));
  }));
  $("one").replaceChildren(...state.runs.map(r => make("option", { value: r.id }, r.name)));
  if (state.runs.some(r => String(r.id) === one)) $("one").value = one;
}
const known = curves.flatMap(c => c[2]), placed = new Set(["step", "schema", ...known, ...parts.map(p => p[0])]);
const wanted = () => [...known, ...($("further").open ? further() : [])].join(), wantedParts = parts.map(p => p[0]).join();
/* A key's own points: the buckets that have it. */
function points(r) {
  const out = {};
  for (const key in r.series) {
    const m = r.series[key], s = out[key] = { x: [], m: [] };
    const least = r.least?.[key], most = r.most?.[key];
    if (least) { s.least = []; s.most = [] }
    for (let i = 0; i < m.length; i++) if (m[i] !== null) { s.x.push(r.x[i]); s.m.push(m[i]); s.least?.push(least[i]); s.most?.push(most[i]) }
  }
  return out;
}
function range(q) {
  q.points = innerWidth > 900 ? 500 : 250;
  if (state.from !== null) { q.from = state.from; q.to = state.to }
  return q;
}
let busy = false, again = false;
async function load() {
  if (busy) { again = true; return }
  busy = true;
  try {
    const keys = wanted();
    const [all, series, one] = await Promise.all([get("/api/runs"), get("/api/series", range({ keys, spread: "loss,grad_norm" })), askOne()]);
    state.runs = all.runs;
    state.version = all.version;
    for (const r of state.runs) state.on[r.id] ??= true;
    state.data = new Map(series.runs.map(r => [r.id, points(r)]));
    listRuns();
    takeOne(one);
    drawAll();
    again ||= keys !== wanted(); /* a file has other metrics by now */
  } catch (e) { $("live").textContent = String(e.message || e) } finally { busy = false }
  if (again) { again = false; load() }
}
/* What is shown of one run. */
function askOne() {
  const run = $("one").value || 0;
  return Promise.all([get("/api/details", { run, points: 200, section: $("section").value }), get("/api/timeline", { run }), get("/api/series", range({ keys: wantedParts, run }))]);
}
function takeOne([details, timeline, parts]) { Object.assign(state, { details, timeline, parts: parts.runs.length ? points(parts.runs[0]) : null }) }
async function loadOne() {
  takeOne(await askOne());
  drawOne();
}
function zoom(from, to) { state.from = from; state.to = to; $("all").hidden = from === null; load() }
function listen() {
  const s = new EventSource(url("/events"));
  s.onopen = () => { $("live").className = "on"; $("live").textContent = "live" };
  s.onmessage = e => { if (+e.data !== state.version) load() };
  s.onerror = () => { $("live").className = "off"; $("live").textContent = "not connected" };
}
const section = make("select", { id: "section", "aria-label": "section" }, ...["compute_s", "data_s", "comm_exposed_s", "optimizer_s", "checkpoint_s", "processors_busy", "link_bytes_per_s", "card_busy", "card_power_w"].map(s => make("option", {}, s)));
for (const [id, title, , wide] of curves) card(id, title, wide);
card("parts", "Step time breakdown");
card("skew", "Ranks relative to their median", false, [section]);
card("units", "Gradient norm by unit");
card("timeline", "Timeline of one step, by rank", true);
card("memory", "Memory plan");
card("over", "Memory plan over a step");
card("answers", "Newest answers", true);
card("events", "Events", true);
section.onchange = loadOne;
$("one").onchange = loadOne;
$("smooth").oninput = $("log").onchange = drawCurves;
$("further").ontoggle = () => { if ($("further").open) load() };
$("all").onclick = () => zoom(null, null);
$("theme").onclick = () => { const d = document.documentElement, dark = d.dataset.theme ? d.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; d.dataset.theme = dark ? "light" : "dark"; drawAll() };
let wait;
addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(drawAll, 150) });
load().then(listen);
/* SPDX-License-Identifier: Apache-2.0 */
