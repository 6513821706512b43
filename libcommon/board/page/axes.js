/* State, numbers and axes. One script with cards.js and data.js. */
"use strict";
const colors = ["#2563eb", "#ea580c", "#16a34a", "#c026d3", "#0891b2", "#ca8a04", "#e11d48", "#6366f1", "#84cc16", "#78716c", "#0f766e", "#f9a8d4", "#854d0e"];
const parts = [["data_s", "data"], ["compute_s", "compute"], ["comm_tensor_s", "tp communication"], ["comm_pipeline_s", "pp communication"],
  ["comm_grads_s", "gradient communication"], ["comm_weights_s", "weight communication"], ["comm_other_s", "other communication"], ["optimizer_s", "optimizer"], ["checkpoint_s", "checkpoint"]];
const curves = [["loss", "Loss", ["loss", "eval_loss"], true], ["reward", "Reward", ["reward_mean", "score_mean"]], ["accuracy", "Evaluation accuracy", ["top1", "top5"]], ["grad_norm", "Gradient norm", ["grad_norm"]],
  ["speed", "Tokens or images per second", ["tokens_per_s", "images_per_s"]], ["lr", "Learning rate", ["lr"]],
  ["mfu", "MFU", ["mfu"]], ["rss_bytes", "Resident memory", ["rss_bytes", "pss_bytes"]]];
const state = { runs: [], on: {}, data: new Map(), from: null, to: null, version: -1, details: null, timeline: null };
const $ = id => document.getElementById(id);
const word = new URLSearchParams(location.search).get("key");
const make = (name, at = {}, ...kids) => { const e = document.createElement(name); for (const k in at) e.setAttribute(k, at[k]); e.append(...kids); return e };
const svg = (name, at, ...kids) => { const e = document.createElementNS("http://www.w3.org/2000/svg", name); for (const k in at) e.setAttribute(k, at[k]); e.append(...kids); return e };
const url = (path, q = {}) => { const p = new URLSearchParams(q); if (word) p.set("key", word); return path + "?" + p };
async function get(path, q) {
  const r = await fetch(url(path, q));
  if (!r.ok) throw new Error(await r.text());
  return r.json();
}
const color = id => colors[id % colors.length];
/* d: digits of a number with a prefix; axes ask for more if two ticks would read the same */
function short(v, d = 3) {
  if (v === null || v === undefined) return "-";
  const a = Math.abs(v);
  if (a >= 1e12) return (v / 1e12).toPrecision(d) + " T";
  if (a >= 1e9) return (v / 1e9).toPrecision(d) + " G";
  if (a >= 1e6) return (v / 1e6).toPrecision(d) + " M";
  if (a >= 1e4) return (v / 1e3).toPrecision(d) + " k";
  return a && a < 1e-3 ? v.toExponential(d - 2) : String(+v.toPrecision(d + 1));
}
function bytes(v, d = 2) {
  if (v === null || v === undefined) return "-";
  if (v === 0) return "0 B";
  const text = v => v.toFixed(Math.max(0, d - String(Math.floor(Math.abs(v))).length));
  for (const u of ["B", "KiB", "MiB", "GiB"]) { if (Math.abs(v) < 1024) return text(v) + " " + u; v /= 1024 }
  return text(v) + " TiB";
}
const percent = (v, d) => v === null || v === undefined ? "-" : short(100 * v, d) + "%";
const unit = key => key === "mfu" ? percent : /_bytes$/.test(key) ? bytes : /_s$/.test(key) && !/_per_s$/.test(key) ? (v, d) => short(v, d) + " s" : short;

/* ---- axes ---- */
function ticks(lo, hi, n) {
  if (!isFinite(hi - lo)) return [];
  /* no finer than numbers of this size are, or v += step would not change v */
  const raw = Math.max((hi - lo) / n, Math.max(Math.abs(lo), Math.abs(hi)) * 1e-14) || 1, mag = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * mag).find(s => s >= raw);
  const out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
function logTicks(lo, hi) {
  const out = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++)
    for (const m of hi / lo > 100 ? [1] : [1, 2, 5]) { const v = m * 10 ** e; if (v >= lo && v <= hi) out.push(v) }
  return out.length > 2 ? out : ticks(lo, hi, 5);
}
/* Sizes have ticks at round numbers of their unit. */
function sizeTicks(lo, hi, log) {
  const most = Math.max(Math.abs(lo), Math.abs(hi), 1), of = 1024 ** Math.floor(Math.log2(most) / 10), out = [];
  if (!log || hi / lo < 8) return ticks(lo / of, hi / of, 5).map(v => v * of);
  for (let e = Math.ceil(Math.log2(lo)), each = Math.ceil(Math.log2(hi / lo) / 6); 2 ** e <= hi; e += each) out.push(2 ** e);
  return out;
}
function labels(list, unit) {
  for (const d of [undefined, 4, 5, 6, 8, 10, 12]) { const out = list.map(v => unit(v, d)); if (new Set(out).size === out.length) return out }
  return list.map(v => String(v));
}
/* One picture; lines: [{name, color, x, y, band: [least, most], dots}], bands cut at the picture's edge. stack: y are sums, areas between them. still: not to be zoomed into. at: what stands under the axis and in the tip for an x. */
function draw(box, lines, o) {
  const w = Math.max(box.clientWidth, 280), h = o.height || 220, L = 58, R = 18, T = 8, B = 24;
  let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
  for (const s of lines) {
    for (const v of s.x) { if (v < x0) x0 = v; if (v > x1) x1 = v }
    for (const v of s.y) if (v !== null && (!o.log || v > 0)) { if (v < y0) y0 = v; if (v > y1) y1 = v }
  }
  box.replaceChildren();
  if (!(x1 >= x0) || !(y1 >= y0)) { box.append(make("div", { class: "none" }, o.none || "no data yet")); return }
  if (o.stack) y0 = 0;
  if (y0 === y1) { y0 -= Math.abs(y0) * 0.1 || 1; y1 += Math.abs(y1) * 0.1 || 1 }
  if (!o.log && !o.stack) { const pad = (y1 - y0) * 0.05; y0 -= pad; y1 += pad }
  if (x0 === x1) { const pad = Math.max(1, Math.abs(x0) * 1e-3); x0 -= pad; x1 += pad }
  const f = o.log ? Math.log : v => v, X = v => L + (v - x0) / (x1 - x0) * (w - L - R), Y = v => T + (f(y1) - f(v)) / (f(y1) - f(y0)) * (h - T - B);
  const clip = "clip" + o.title.replace(/\W/g, ""), root = svg("svg", { viewBox: `0 0 ${w} ${h}`, height: h, role: "img", "aria-label": o.title },
    svg("clipPath", { id: clip }, svg("rect", { x: L, y: T, width: w - L - R, height: h - T - B })));
  const high = o.unit === bytes ? sizeTicks(y0, y1, o.log) : o.log ? logTicks(y0, y1) : ticks(y0, y1, 5), along = ticks(x0, x1, Math.max(2, w / 110));
  labels(high, o.unit || short).forEach((text, i) => root.append(svg("line", { x1: L, x2: w - R, y1: Y(high[i]), y2: Y(high[i]), stroke: "var(--line)" }), svg("text", { x: L - 6, y: Y(high[i]) + 4, "text-anchor": "end" }, text)));
  (o.at ? along.map(o.at) : labels(along, short)).forEach((text, i) => root.append(svg("text", { x: X(along[i]), y: h - 6, "text-anchor": "middle" }, text)));
  if (!o.at) root.append(svg("text", { x: L - 6, y: h - 6, "text-anchor": "end" }, "step"));
  const path = (xs, ys) => { let d = "", pen = "M"; for (let i = 0; i < xs.length; i++) { if (ys[i] === null || (o.log && ys[i] <= 0)) { pen = "M"; continue } d += pen + X(xs[i]).toFixed(1) + " " + Y(ys[i]).toFixed(1); pen = "L" } return d };
  const inside = ys => ys.map(v => o.log && v < y0 ? y0 : v);
  lines.forEach((s, i) => {
    if (o.stack) {
      const below = i ? lines[i - 1].y : s.y.map(() => 0);
      let d = path(s.x, s.y);
      for (let k = s.x.length - 1; k >= 0; k--) d += "L" + X(s.x[k]).toFixed(1) + " " + Y(below[k]).toFixed(1);
      root.append(svg("path", { d: d + "Z", fill: s.color, "fill-opacity": 0.75 }));
      return;
    }
    if (s.band) root.append(svg("path", { d: path(s.x, inside(s.band[1])) + path([...s.x].reverse(), inside(s.band[0]).reverse()).replace("M", "L") + "Z", fill: s.color, "fill-opacity": 0.2 / Math.sqrt(lines.length), "clip-path": `url(#${clip})` }));
    if (s.dots) s.x.forEach((v, k) => root.append(svg("circle", { cx: X(v), cy: Y(s.y[k]), r: 2.5, fill: s.color })));
    root.append(svg("path", { d: path(s.x, s.y), fill: "none", stroke: s.color, "stroke-width": 1.6, "stroke-dasharray": s.dashed ? "4 3" : "none" }));
  });
  const shade = svg("rect", { y: T, height: h - T - B, fill: "var(--accent)", "fill-opacity": 0.15, visibility: "hidden" });
  const rule = svg("line", { y1: T, y2: h - B, stroke: "var(--dim)", visibility: "hidden" });
  root.append(shade, rule);
  let start = null;
  const at = e => { const r = root.getBoundingClientRect(); return x0 + ((e.clientX - r.left) * w / r.width - L) / (w - L - R) * (x1 - x0) };
  root.onpointermove = e => {
    const v = at(e);
    rule.setAttribute("visibility", "visible"); rule.setAttribute("x1", X(v)); rule.setAttribute("x2", X(v));
    if (start !== null) { const a = X(Math.min(start, v)), b = X(Math.max(start, v)); shade.setAttribute("visibility", "visible"); shade.setAttribute("x", a); shade.setAttribute("width", b - a) }
    tip(e, lines.map((s, i) => { const k = nearest(s.x, v); const y = o.stack && i ? s.y[k] - lines[i - 1].y[k] : s.y[k]; return k < 0 ? "" : `${(o.at || String)(s.x[k])}  ${s.name}  ${(o.unit || short)(y)}` }).filter(Boolean).slice(0, 14).join("\n"));
  };
  root.onpointerleave = () => { rule.setAttribute("visibility", "hidden"); tip(null) };
  root.onpointerdown = e => { if (e.pointerType === "mouse" && !o.still) { start = at(e); root.setPointerCapture(e.pointerId) } };
  root.onpointerup = e => {
    const v = at(e), a = start; start = null;
    if (a !== null && !o.still && Math.abs(X(a) - X(v)) > 8) zoom(Math.min(a, v), Math.max(a, v)); else shade.setAttribute("visibility", "hidden");
  };
  box.append(root);
}
function nearest(x, v) {
  let lo = 0, hi = x.length - 1;
  if (hi < 0) return -1;
  while (lo < hi) { const m = (lo + hi) >> 1; if (x[m] < v) lo = m + 1; else hi = m }
  return lo > 0 && v - x[lo - 1] < x[lo] - v ? lo - 1 : lo;
}
function tip(e, text) {
  const t = $("tip");
  t.style.display = e && text ? "block" : "none";
  if (!e) return;
  t.textContent = text;
  t.style.left = Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = Math.min(e.clientY + 14, innerHeight - t.offsetHeight - 8) + "px";
}
function smooth(y, a) {
  let s = 0, weight = 0;
  return y.map(v => { if (v === null) return null; s = a * s + (1 - a) * v; weight = a * weight + (1 - a); return s / weight });
}
/* SPDX-License-Identifier: Apache-2.0 */
