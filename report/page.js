
"use strict";
// Plots that a reader looks at closer: the pointer or the arrow keys show values, dragging or + and - zoom, 0 shows the
// whole again, l changes to a logarithmic scale. Axes are worked out as in axis.go.
const plots = (() => {
  const minus = "−";
  const ok = (v) => v !== null && Math.abs(v) <= 1e300;

  function wholeNumber(v) {
    const s = Math.abs(Math.round(v)).toFixed(0);
    return (v < 0 && s !== "0" ? minus : "") + s.replace(/\B(?=(\d{3})+$)/g, ",");
  }

  function number(v) {
    if (!ok(v)) return "not finite";
    const a = Math.abs(v);
    if (a >= 1e15 || (a > 0 && a < 1e-3)) {
      const [m, e] = v.toExponential(3).split("e");
      return m.replace(/\.?0+$/, "") + "e" + parseInt(e, 10);
    }
    if (v === Math.trunc(v) || a >= 999.95) return wholeNumber(v);
    const t = v.toFixed(3 - Math.floor(Math.log10(a)));
    return t.includes(".") ? t.replace(/\.?0+$/, "") : t;
  }

  function axisOf(log, padded, lists) {
    let lo = Infinity, hi = -Infinity;
    for (const vs of lists) for (const v of vs) if (ok(v) && (!log || v > 0)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
    if (lo > hi) [lo, hi] = log ? [0.1, 1] : [0, 1];
    else if (lo === hi && log) [lo, hi] = [lo / 2, hi * 2];
    else if (lo === hi) { const d = padded ? Math.max(Math.abs(lo) / 10, 1e-12) : 1; [lo, hi] = [lo - d, hi + d]; }
    else if (padded && log) { const r = Math.pow(hi / lo, 0.05); [lo, hi] = [lo / r, hi * r]; }
    else if (padded) { const d = (hi - lo) / 20; [lo, hi] = lo >= 0 && lo < hi / 4 ? [0, hi + d] : [lo - d, hi + d]; }
    return axis(lo, hi, log);
  }

  const axis = (lo, hi, log) => ({ lo, hi, log,
    place: (v) => log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo),
    drawable: (v) => ok(v) && (!log || v > 0) });

  function tickLabel(v, step) {
    const e = Math.floor(Math.log10(step) + 1e-9), a = Math.abs(v);
    if (a < step / 1e6) return "0";
    if (step < 0.9999e-5 || a >= 1e9) {
      const [m, x] = v.toExponential(Math.max(0, Math.floor(Math.log10(a) + 1e-9) - e)).split("e");
      return m.replace("-", minus) + "e" + String(parseInt(x, 10)).replace("-", minus);
    }
    return e >= 0 ? wholeNumber(v) : v.toFixed(-e).replace("-", minus);
  }

  function ticks(a, n, ints) {
    const out = [];
    if (a.log && a.hi / a.lo >= 3) {
      const from = Math.floor(Math.log10(a.lo)), to = Math.floor(Math.log10(a.hi) + 1e-9), parts = a.hi / a.lo < 200 ? [1, 2, 5] : [1];
      for (let e = from, by = Math.max(1, Math.ceil((to - from + 1) / (n + 2))); e <= to; e += by)
        for (const m of parts) { const v = m * Math.pow(10, e); if (v >= a.lo && v <= a.hi) out.push([a.place(v), tickLabel(v, v)]); }
      return out;
    }
    const raw = (a.hi - a.lo) / n, power = Math.pow(10, Math.floor(Math.log10(raw)));
    let step = ([1, 2, 5].find((m) => raw / power <= m * 1.5) || 10) * power;
    if (ints) step = Math.max(1, step);
    for (let k = Math.ceil(a.lo / step - 1e-9); k * step <= a.hi + step * 1e-9 && out.length < 4 * n; k++) out.push([a.place(k * step), tickLabel(k * step, step)]);
    return out;
  }

  const pc = (v) => Math.round(10000 * v) / 100 + "%";
  const pt = (v) => Math.round(10000 * Math.min(10, Math.max(-10, v))) / 10;
  function element(name, attributes, text) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    return e;
  }

  // between is the part of ascending xs that lies in [lo, hi], with a point more at each end.
  function between(xs, lo, hi) {
    let i = 0, j = xs.length;
    while (i < j && xs[i + 1] < lo) i++;
    while (j > i && xs[j - 2] > hi) j--;
    return [i, j];
  }

  // The level of smoothing that a reader has chosen, for all plots that have a slider; null = each plot's own.
  let chosen = null;
  const sliders = new Set();
  function smoothing(level) {
    chosen = level;
    for (const p of sliders) if (p.figure.isConnected) p.choose(); else sliders.delete(p);
  }

  // attach makes a plot one that is looked at closer. It answers with what lets it grow and keeps a reader's view of it.
  // more(lo, hi), where there is one, promises the points of a part that was zoomed into.
  function attach(figure, more) {
    const json = figure.querySelector("script");
    if (!json) return null;
    const data = JSON.parse(json.textContent), $ = (s) => figure.querySelector(s), $$ = (s) => [...figure.querySelectorAll(s)];
    const area = $(".area"), cursor = $(".cursor"), range = $(".range"), at = $(".at"), outputs = $$(".key output");
    const all = $("button.all"), log = $("button.log"), first = { at: at.textContent, values: outputs.map((o) => o.textContent) };
    const lines = $$(".area .line"), ends = $$(".ends text, .area > text");
    const owner = (path) => lines.indexOf(path.previousElementSibling);
    const dots = $$(".area .dots").map((p) => [owner(p), p]), bands = $$(".area .band");
    const banded = data.s.map((s, i) => s.bx ? i : -1).filter((i) => i >= 0);
    let full, xs, x, y, fine = null, where = -1;
    const slider = $(".smooth input"), own = data.level;
    let level = slider && chosen !== null ? Math.min(chosen, +slider.max) : own;
    const points = () => fine && x !== full && fine.lo <= x.lo && fine.hi >= x.hi ? fine.s : data.s;
    const lists = () => level === own ? points() : points().map((s) => s.l && s.l[level] || s);

    function measure() {
      const whole = x === full;
      full = axisOf(false, false, data.s.map((s) => s.x));
      if (whole) x = full;
      xs = [...new Set(lists().flatMap((s) => s.x.filter(ok)))].sort((a, b) => a - b);
    }

    function draw() {
      const src = lists();
      const parts = src.map((s) => between(s.x, x.lo, x.hi));
      const inside = (s, [i, j]) => s.y.slice(i, j).filter((_, k) => s.x[i + k] >= x.lo && s.x[i + k] <= x.hi);
      const bandInside = (s) => s.bx ? [s.lo, s.hi].map((v) => v.filter((_, k) => s.bx[k] >= x.lo && s.bx[k] <= x.hi)) : [];
      y = axisOf(data.log, true, src.flatMap((s, n) => [inside(s, parts[n]), ...bandInside(s)]));
      src.forEach((s, n) => {
        let d = "", dot = "", on = false;
        for (let i = parts[n][0]; i < parts[n][1]; i++) {
          if (!y.drawable(s.y[i]) || !ok(s.x[i])) { on = false; continue; }
          const p = pt(x.place(s.x[i])) + " " + pt(1 - y.place(s.y[i]));
          d += on ? "L" + p : "M" + p + "h0";
          dot += "M" + p + "h0";
          on = true;
        }
        lines[n].setAttribute("d", d);
        for (const [of, path] of dots) if (of === n) path.setAttribute("d", dot);
      });
      banded.forEach((n, i) => {
        const s = src[n], p = (v, k) => pt(x.place(s.bx[k])) + " " + pt(1 - y.place(Math.max(v[k], y.log ? y.lo : -Infinity)));
        const up = s.bx.map((_, k) => p(s.hi, k)), down = s.bx.map((_, k) => p(s.lo, k)).reverse();
        bands[i].setAttribute("d", "M" + up.concat(down).join("L") + "Z");
      });
      const bad = [];
      for (const s of src) s.y.forEach((v, i) => { if (!ok(v) && ok(s.x[i]) && bad.length < 50) bad.push(s.x[i]); });
      if ($(".bad")) $(".bad").setAttribute("d", bad.map((v) => "M" + pt(x.place(v)) + " 0V60").join(""));
      const yt = ticks(y, 5, false), xt = ticks(x, 4, data.whole);
      $("svg.y").replaceChildren(...yt.map(([p, t]) => element("text", { x: 52, y: pc(1 - p) }, t)));
      $(".grid").replaceChildren(...yt.map(([p]) => element("line", { x1: 0, x2: "100%", y1: pc(1 - p), y2: pc(1 - p) })));
      $("svg.x").replaceChildren(...xt.map(([p, t]) => element("text", { x: pc(p), y: 15 }, t)));
      const out = x !== full;
      all.disabled = !out;
      figure.classList.toggle("zoomed", out);
      if (out || data.log !== first.log || level !== own) label(src, parts);
      else for (const e of ends) { e.setAttribute("visibility", "visible"); e.setAttribute("y", first.ends.get(e)[0]); e.textContent = first.ends.get(e)[1]; }
      show(where);
    }

    // label puts the labels beside the last points that are in view, without one covering another.
    function label(src, parts) {
      let beside = [];
      for (const e of ends) {
        const n = +e.dataset.of, s = src[n];
        let i = parts[n][1] - 1;
        while (i >= parts[n][0] && (!y.drawable(s.y[i]) || s.x[i] > x.hi || s.x[i] < x.lo)) i--;
        const seen = i >= parts[n][0] && e.parentNode !== area;
        e.setAttribute("visibility", seen ? "visible" : "hidden");
        if (!seen) continue;
        if (ends.length === 1) e.textContent = number(s.y[i]);
        beside.push([1 - y.place(s.y[i]), e]);
      }
      const gap = 15 / 260;
      beside.sort((a, b) => a[0] - b[0]);
      beside.forEach((b, i) => { b[0] = Math.max(b[0], i ? beside[i - 1][0] + gap : gap / 2); });
      for (let i = beside.length - 1, most = 1 - gap / 4; i >= 0; i--, most = beside[i + 1][0] - gap) {
        beside[i][0] = Math.min(beside[i][0], most);
        beside[i][1].setAttribute("y", pc(beside[i][0]));
      }
    }

    // choose draws the curves at the level of smoothing that was chosen.
    function choose() {
      level = Math.min(chosen, +slider.max);
      slider.value = level;
      $(".smooth .level").textContent = slider.dataset.levels.split(" ")[level];
      first.values = data.s.map((s, n) => {
        const v = level === own || !s.l || !s.l[level] ? own_values[n] : s.l[level].y.findLast(ok);
        return typeof v === "number" ? number(v) : v;
      });
      measure();
      draw();
    }

    // show puts the cursor on the i-th place of all curves; -1 takes it away.
    function show(i) {
      where = i;
      const v = xs[i];
      if (v === undefined || v < x.lo || v > x.hi) {
        cursor.setAttribute("visibility", "hidden");
        at.textContent = first.at;
        outputs.forEach((o, n) => { o.textContent = first.values[n]; });
        return;
      }
      const p = pc(x.place(v));
      cursor.setAttribute("x1", p); cursor.setAttribute("x2", p); cursor.setAttribute("visibility", "visible");
      at.textContent = ($(".xlabel").textContent || "at") + " " + number(v);
      lists().forEach((s, n) => {
        let k = nearest(s.x, v);
        outputs[n].textContent = s.x[k] === v ? number(s.y[k]) : s.x[k] > s.x[0] || s.x[0] <= v ? "at " + number(s.x[k]) + ": " + number(s.y[k]) : "–";
      });
    }

    function nearest(list, v) {
      let lo = 0, hi = list.length - 1;
      while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid] < v) lo = mid + 1; else hi = mid; }
      return lo > 0 && v - list[lo - 1] < list[lo] - v ? lo - 1 : lo;
    }

    function zoom(lo, hi) {
      const least = (full.hi - full.lo) / 1e5;
      lo = Math.max(lo, full.lo); hi = Math.min(hi, full.hi);
      if (hi - lo < least) return;
      const at = where < 0 ? null : xs[where];
      x = lo <= full.lo && hi >= full.hi ? full : axis(lo, hi, false);
      measure();
      where = at === null ? -1 : nearest(xs, at);
      draw();
      if (more && x !== full && points() === data.s) finer(x);
    }

    // finer asks for the points of what is seen, once a reader has stopped zooming.
    let waits;
    function finer(seen) {
      clearTimeout(waits);
      waits = setTimeout(async () => {
        const got = await more(seen.lo, seen.hi);
        if (!got || x !== seen || got.s.length !== data.s.length) return;
        const at = where < 0 ? null : xs[where];
        fine = { lo: seen.lo, hi: seen.hi, s: got.s };
        measure();
        where = at === null ? -1 : nearest(xs, at);
        draw();
      }, 150);
    }

    function whole() { x = full; measure(); show(-1); draw(); }

    function closer(factor) {
      const centre = where >= 0 ? xs[where] : (x.lo + x.hi) / 2, half = (x.hi - x.lo) * factor / 2;
      zoom(centre - half, centre + half);
    }

    function scale() { data.log = !data.log; log.setAttribute("aria-pressed", data.log); draw(); }

    const share = (e) => { const r = area.getBoundingClientRect(); return Math.min(1, Math.max(0, (e.clientX - r.left) / r.width)); };
    const value = (p) => x.lo + p * (x.hi - x.lo);
    let from = null;
    area.addEventListener("pointermove", (e) => {
      const p = share(e);
      show(nearest(xs, value(p)));
      if (from !== null) {
        range.setAttribute("x", pc(Math.min(from, p))); range.setAttribute("width", pc(Math.abs(p - from))); range.setAttribute("visibility", "visible");
      }
    });
    area.addEventListener("pointerdown", (e) => { if (e.button === 0 && e.pointerType !== "touch") { from = share(e); area.setPointerCapture(e.pointerId); } });
    area.addEventListener("pointerup", (e) => {
      const p = share(e), start = from;
      from = null;
      range.setAttribute("visibility", "hidden");
      if (start !== null && Math.abs(p - start) > 0.01) zoom(value(Math.min(start, p)), value(Math.max(start, p)));
    });
    area.addEventListener("pointerleave", () => { if (from === null) show(-1); });
    area.addEventListener("dblclick", whole);
    figure.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const by = e.shiftKey ? Math.max(1, xs.length >> 5) : 1, start = where < 0 ? nearest(xs, x.lo) : where;
      switch (e.key) {
        case "ArrowLeft": show(Math.max(0, nearest(xs, x.lo), where < 0 ? 0 : start - by)); break;
        case "ArrowRight": show(Math.min(nearest(xs, x.hi), where < 0 ? start : start + by)); break;
        case "Home": show(nearest(xs, x.lo)); break;
        case "End": show(nearest(xs, x.hi)); break;
        case "+": case "=": closer(0.5); break;
        case "-": closer(2); break;
        case "0": whole(); break;
        case "l": scale(); break;
        case "Escape": show(-1); break;
        default: return;
      }
      e.preventDefault();
    });
    all.addEventListener("click", whole);
    log.addEventListener("click", scale);
    first.log = data.log;
    first.ends = new Map(ends.map((e) => [e, [e.getAttribute("y"), e.textContent]]));
    const own_values = first.values;
    $(".tools").hidden = false;
    if (slider) {
      const why = $(".note.formula"), help = $("button.formula");
      why.hidden = true;
      help.addEventListener("click", () => { why.hidden = !why.hidden; help.setAttribute("aria-expanded", !why.hidden); });
      slider.addEventListener("input", () => smoothing(+slider.value));
      slider.addEventListener("keydown", (e) => e.stopPropagation());
      sliders.add({ figure, choose });
    }
    measure();
    if (level === own) draw(); else choose();
    return {
      // grow adds points at the curves' ends.
      grow(more) {
        more.s.forEach((s, n) => {
          data.s[n].x.push(...s.x); data.s[n].y.push(...s.y);
          const v = data.s[n].y.findLast(ok);
          if (v !== undefined) first.values[n] = number(v);
        });
        more.ends.forEach(([x, y, t], i) => {
          if (!ends[i]) return;
          if (x) ends[i].setAttribute("x", x);
          ends[i].setAttribute("y", y); ends[i].textContent = t; first.ends.set(ends[i], [y, t]);
        });
        measure();
        draw();
      },
      view: () => ({ lo: x === full ? null : x.lo, hi: x.hi, log: data.log, at: where < 0 ? null : xs[where] }),
      look(v) {
        if (v.log !== data.log) scale();
        if (v.lo !== null) zoom(v.lo, v.hi);
        if (v.at !== null) show(nearest(xs, v.at));
      },
    };
  }

  for (const figure of document.querySelectorAll("figure.plot")) attach(figure);
  addEventListener("beforeprint", () => { for (const n of document.querySelectorAll(".note.formula")) n.hidden = false; for (const d of document.querySelectorAll("details")) d.open = true; });
  return { attach };
})();
