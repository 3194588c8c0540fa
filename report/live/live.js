"use strict";
// The page of trainer ui. What it shows comes as server-sent events: the list of runs, and the page about those that are
// chosen, whole at first and then the pieces that have changed. Texts from runs are set as text, or escaped by the server.
const ui = (() => {
  const $ = (id) => document.getElementById(id);
  const store = { get: (k) => { try { return sessionStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { sessionStorage.setItem(k, v); } catch { /* this tab alone */ } } };

  // The address that the terminal printed has the token behind #, which reaches no server and is taken out here.
  const fragment = new URLSearchParams(location.hash.slice(1));
  let token = fragment.get("token") || store.get("token") || "";
  if (fragment.get("token")) store.set("token", token);
  let current = (fragment.get("show") || "").split(",")[0] || null, marks = new Set((fragment.get("show") || "").split(",").slice(1));
  let rows = [], queue = [], states = new Map(), drawn = new Map(), stopping = null;

  function remember() {
    history.replaceState(null, "", shown().length ? "#show=" + shown().join(",") : location.pathname);
  }

  const shown = () => current ? [current, ...[...marks].filter((id) => id !== current)] : [...marks];

  function make(name, attributes, ...inside) {
    const e = document.createElement(name);
    for (const k in attributes) if (attributes[k] !== null && attributes[k] !== false) e.setAttribute(k, attributes[k] === true ? "" : attributes[k]);
    e.append(...inside);
    return e;
  }

  async function ask(path, body) {
    const headers = { "X-Trainer-Token": token };
    if (body) headers["Content-Type"] = "application/json";
    const r = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), cache: "no-store" });
    const answer = await r.json().catch(() => ({ error: "the answer is not whole" }));
    if (!r.ok) throw new Error(answer.error || r.statusText);
    return answer;
  }

  // post sends a body as it is and promises the response.
  const post = (path, body, kind, signal) => fetch(path, { method: "POST", headers: { "X-Trainer-Token": token, "Content-Type": kind }, body, signal, cache: "no-store" });

  // listen reads events until the runs that are shown change; then the next call takes over.
  let listening = null, heard = false;
  const width = () => Math.max(200, Math.min(4000, Math.round($("main").clientWidth)));
  async function listen() {
    if (listening) listening.abort();
    const mine = listening = new AbortController();
    let pause = 500;
    while (!mine.signal.aborted) {
      try {
        const r = await fetch(`/api/events?show=${shown().join(",")}&width=${width()}`, { headers: { "X-Trainer-Token": token }, signal: mine.signal, cache: "no-store" });
        if (!r.ok) throw Object.assign(new Error((await r.json()).error), { told: true });
        pause = 500;
        connected(true);
        const read = r.body.getReader(), decoder = new TextDecoder();
        for (let text = ""; ;) {
          const { done, value } = await read.read();
          if (done) break;
          text += decoder.decode(value, { stream: true });
          for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) event(text.slice(0, end));
        }
      } catch (e) {
        if (mine.signal.aborted) return;
        connected(false, e.told ? e.message : null);
      }
      if (mine.signal.aborted) return;
      connected(false);
      await new Promise((go) => setTimeout(go, pause));
      pause = Math.min(5000, pause * 2);
    }
  }

  function connected(on, why) {
    if (on) heard = true;
    const link = $("link");
    link.className = on ? "on" : "off";
    link.textContent = on ? "live" : heard ? "no connection: trainer ui has ended, or is out of reach" : "connecting …";
    $("page").classList.toggle("stale", !on);
    if (why) trouble(why);
    else if (on) trouble("");
  }

  function trouble(text) { $("trouble").textContent = text; $("trouble").hidden = !text; }

  function event(text) {
    let name = "", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    const v = JSON.parse(data);
    if (name === "list") list(v);
    else if (name === "page") whole(v.html);
    else if (name === "piece") piece(v);
    else if (name === "grow") { const p = drawn.get(v.id); if (p) p.grow(v); }
  }

  // Tabs: sections of a page that name one are seen when it is chosen; all others are on the first.
  const overview = "Overview";
  let tab = overview;
  const tabOf = (section) => section.dataset.tab || overview;
  const sections = () => [...$("page").children].filter((e) => /^(SECTION|DETAILS)$/.test(e.tagName));

  function showTabs() {
    const names = [...new Set(sections().map(tabOf))], extra = one() ? panels.filter((p) => p.when(rows.find((r) => r.id === current))) : [];
    for (const p of extra) if (!names.includes(p.name)) names.push(p.name);
    names.sort((a, b) => tabOrder(a) - tabOrder(b));
    const now = names.includes(tab) ? tab : overview;
    $("tabs").hidden = names.length < 2;
    $("tabs").setAttribute("aria-hidden", names.length < 2);
    if ([...$("tabs").children].map((b) => b.textContent).join("\n") !== names.join("\n")) {
      $("tabs").replaceChildren(...names.map((name) => {
        const b = make("button", { type: "button", role: "tab", "aria-controls": "page" }, name);
        b.addEventListener("click", () => chooseTab(name));
        return b;
      }));
    }
    for (const b of $("tabs").children) {
      b.setAttribute("aria-selected", b.textContent === now);
      b.tabIndex = b.textContent === now ? 0 : -1;
    }
    for (const s of sections()) {
      s.hidden = names.length > 1 && tabOf(s) !== now;
      if (s.tagName === "DETAILS" && s.dataset.tab && names.length > 1) s.open = s.open || s.dataset.tab === s.querySelector("h2").textContent;
    }
    for (const p of panels) p.show(extra.includes(p) && p.name === now);
  }
  const order = [overview, "Hardware", "Log", "Data", "Configuration", "Chat"];
  const tabOrder = (name) => { const i = order.indexOf(name); return i < 0 ? order.length : i; };
  const panels = []; // parts of the page that are no section of a report: {name, when(row), show(on)}
  const one = () => shown().length === 1;

  function chooseTab(name) { tab = name; showTabs(); }

  $("tabs").addEventListener("keydown", (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key], all = [...$("tabs").children], at = all.indexOf(document.activeElement);
    if (!by || at < 0) return;
    const next = all[(at + by + all.length) % all.length];
    chooseTab(next.textContent);
    next.focus();
    e.preventDefault();
  });

  // Pieces of a page.
  async function more(id, from, to) {
    try {
      return await ask(`/api/points?show=${shown().join(",")}&piece=${id}&from=${from}&to=${to}&width=${width()}`);
    } catch { return null; }
  }

  function attach(element) {
    for (const figure of element.querySelectorAll("figure.plot")) {
      const id = figure.closest(".piece").id, p = plots.attach(figure, (lo, hi) => more(id, lo, hi));
      if (p) drawn.set(id, p);
    }
  }

  let showing = "";
  function whole(html) {
    const page = $("page"), same = showing === shown().join(","), views = new Map(), open = new Set();
    if (same) {
      for (const [id, p] of drawn) views.set(titleOf(id), p.view());
      for (const d of page.querySelectorAll("details[open] > summary")) open.add(d.textContent);
    }
    showing = shown().join(",");
    drawn.clear();
    page.before($("tabs")); // it stands inside the page, which is made anew
    page.innerHTML = html; // made and escaped by the server, like the pages of trainer report
    page.classList.remove("stale");
    attach(page);
    for (const [id, p] of drawn) if (views.has(titleOf(id))) p.look(views.get(titleOf(id)));
    for (const s of page.querySelectorAll("details > summary")) if (open.has(s.textContent)) s.parentNode.open = true;
    if (!same) $("main").scrollTop = 0;
    placeTabs();
    showTabs();
    actions();
  }
  // placeTabs puts the tabs below the title, which is a piece of the page.
  function placeTabs() {
    const head = $("head");
    if (head) head.after($("tabs")); else $("page").before($("tabs"));
  }
  const titleOf = (id) => (($(id) || document).querySelector("figcaption") || {}).textContent || id;

  function piece({ id, html }) {
    const old = $(id);
    if (!old) return;
    const holder = document.createElement("div");
    holder.innerHTML = html;
    const fresh = holder.firstElementChild, p = drawn.get(id), view = p && p.view(), focused = old.contains(document.activeElement);
    old.replaceWith(fresh);
    drawn.delete(id);
    attach(fresh);
    if (view && drawn.has(id)) drawn.get(id).look(view);
    if (focused) (fresh.querySelector("figure, [tabindex]") || $("main")).focus({ preventScroll: true });
  }

  // The list.
  const words = { running: "running", finished: "finished", stopped: "stopped", failed: "failed" };
  function list(v) {
    const old = new Map([...rows, ...v.runs].map((r) => [r.id, r]));
    rows = v.order.map((id) => old.get(id)); queue = v.queue;
    for (const r of rows) {
      const was = states.get(r.id);
      if (was && was !== r.status) $("announce").textContent = `${r.name}: ${words[r.status]}`;
      states.set(r.id, r.status);
    }
    const known = new Set([...rows.map((r) => r.id), ...queue.map((q) => q.id)]);
    const before = shown().join(",");
    for (const id of marks) if (!known.has(id)) marks.delete(id);
    const q = queue.find((q) => q.id === current);
    if (q && q.run && q.state === "running") current = q.run; // its folder is there now
    if (!current || !known.has(current)) current = rows.length ? rows[0].id : queue.length ? queue[0].id : null;
    if (shown().join(",") !== before) { remember(); listen(); }
    render();
  }

  function matching() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((r) => words.every((w) => `${r.name} ${r.dir} ${r.status} ${r.group} ${r.note}`.toLowerCase().includes(w)));
    const by = $("sort").value, missing = (v) => v || Infinity;
    if (by === "name") found.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    if (by === "loss") found.sort((a, b) => missing(a.last) - missing(b.last));
    if (by === "eval") found.sort((a, b) => missing(a.eval) - missing(b.eval));
    const first = new Map(); // groups stand where their first run does; runs without one come first
    found.forEach((r, i) => { if (!first.has(groupOf(r))) first.set(groupOf(r), groupOf(r) ? i : -1); });
    return found.sort((a, b) => first.get(groupOf(a)) - first.get(groupOf(b)));
  }
  const groupOf = (r) => r.group || r.under;

  // when is a time as people say it: the hour of today, else the day.
  function when(seconds) {
    if (!seconds) return "";
    const d = new Date(1000 * seconds), now = new Date();
    if (d.toDateString() === now.toDateString()) return d.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return d.toLocaleDateString([], { day: "numeric", month: "short", year: d.getFullYear() === now.getFullYear() ? undefined : "numeric" });
  }

  function render() {
    const found = matching(), running = rows.filter((r) => r.status === "running").length;
    $("count").textContent = `${rows.length} ${rows.length === 1 ? "run" : "runs"}${running ? `, ${running} running` : ""}`;
    const list = $("runs"), old = new Map([...list.children].map((li) => [li.dataset.id, li]));
    let at = 0, group = "";
    const put = (li) => { if (list.children[at] !== li) list.insertBefore(li, list.children[at] || null); at++; };
    for (const r of found) {
      if (groupOf(r) !== group) {
        group = groupOf(r);
        const key = "group " + group, head = old.get(key) || make("li", { "data-id": key, class: "group" }, group);
        old.delete(key);
        put(head);
      }
      const li = old.get(r.id) || item(r.id);
      old.delete(r.id);
      fill(li, r);
      put(li);
    }
    for (const li of old.values()) li.remove();
    $("none").hidden = found.length > 0 || !rows.length;
    $("none").textContent = "No run matches.";
    $("empty").hidden = rows.length + queue.length > 0;
    $("waiting").hidden = !queue.length;
    const held = $("queue").contains(document.activeElement) ? document.activeElement : null;
    $("queue").replaceChildren(...queue.map(entry));
    $("clear").hidden = !token || !queue.some((q) => q.state === "ended" || q.state === "lost");
    if (held) refocus(held);
    const r = rows.find((r) => r.id === current);
    document.title = r ? (r.status === "running" ? "● " : "") + r.steps + " " + r.name : "Runs";
    actions();
  }

  function item(id) {
    const box = make("input", { type: "checkbox" }), button = make("button", { type: "button", class: "run" });
    button.append(make("b"), make("small"), document.createElementNS("http://www.w3.org/2000/svg", "svg"), make("progress", { max: 1 }));
    box.addEventListener("change", () => { if (box.checked) marks.add(id); else marks.delete(id); if (marks.size && !marks.has(current)) marks.add(current); if (marks.size === 1) marks.clear(); changed(); });
    button.addEventListener("click", () => { marks.clear(); choose(id); const side = matchMedia("(max-width: 60rem)").matches; if (side) $("fold").open = false; });
    const li = make("li", { "data-id": id }, box, button);
    const svg = li.querySelector("svg");
    svg.setAttribute("viewBox", "0 0 100 100"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("aria-hidden", "true");
    svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
    return li;
  }

  function fill(li, r) {
    const [box, button] = li.children, [name, small, svg, bar] = button.children;
    box.checked = marks.has(r.id);
    box.setAttribute("aria-label", "compare " + r.name);
    if (name.textContent !== r.name) { name.textContent = r.name; }
    button.title = r.dir + (r.note ? "\n" + r.note : "");
    small.replaceChildren(make("span", { class: "is-" + r.status }, words[r.status] || r.status), ` · loss ${r.loss}`, document.createElement("br"), [`step ${r.steps}`, r.eval_is && `eval ${r.eval_is}`, when(r.began)].filter(Boolean).join(" · "),
      ...(r.error ? [document.createElement("br"), make("span", { class: "is-failed why" }, r.error)] : []));
    svg.firstChild.setAttribute("d", r.spark);
    bar.hidden = r.status !== "running" || !r.part;
    bar.value = r.part;
    bar.setAttribute("aria-label", "steps done");
    const is = r.id === current;
    li.className = is ? "current" : "";
    if (is) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
  }

  function entry(q) {
    const b = make("button", { type: "button", class: "run" }, make("b", {}, q.name), make("small", { class: q.bad ? "is-bad" : q.state === "running" || q.state === "elsewhere" ? "is-running" : null }, q.text));
    b.addEventListener("click", () => { marks.clear(); choose(q.state !== "waiting" && q.run && !q.bad ? q.run : q.id); });
    const li = make("li", { class: q.id === current ? "current" : null, "data-id": q.id }, b);
    if (q.state === "waiting" && token) {
      const turns = queue.filter((o) => o.state === "waiting"), at = turns.indexOf(q);
      for (const [way, sign, end] of [["up", "↑", 0], ["down", "↓", turns.length - 1]]) {
        const m = make("button", { type: "button", class: "move", "data-way": way, "aria-label": `move ${q.name} ${way} in the queue`, title: `move ${way} in the queue` }, sign);
        m.disabled = at === end;
        m.addEventListener("click", () => move(q, way));
        li.append(m);
      }
      const x = make("button", { type: "button", class: "take", "aria-label": "take " + q.name + " out of the queue", title: "take out of the queue" }, "✕");
      x.addEventListener("click", () => act("/api/remove", q.id, "taken out of the queue"));
      li.append(x);
    }
    return li;
  }

  // refocus gives the focus back to what stands for an element of the queue now; at an end of it, to the other direction.
  function refocus(held) {
    const old = held.closest("li"), li = old && [...$("queue").children].find((o) => o.dataset.id === old.dataset.id);
    if (!li) return $("main").focus({ preventScroll: true });
    const kind = held.dataset.way ? `[data-way="${held.dataset.way}"]` : held.classList.contains("take") ? ".take" : ".run";
    const e = [li.querySelector(kind), li.querySelector(".move:not(:disabled)"), li.querySelector(".run")].find((e) => e && !e.disabled);
    if (e) e.focus({ preventScroll: true });
  }

  async function move(q, way) {
    try {
      await ask("/api/move", { id: q.id, value: way });
      $("announce").textContent = `${q.name} moved ${way} in the queue`;
      trouble("");
    } catch (e) { trouble(e.message); }
  }

  function choose(id) { current = id; changed(); }

  function changed() {
    remember();
    render();
    $("page").classList.add("stale");
    listen();
  }

  function actions() {
    const r = rows.find((r) => r.id === current), one = shown().length === 1;
    if (r && stopping === r.id && r.status !== "running") { stopping = null; $("said").textContent = ""; }
    $("actions").hidden = !r && one;
    for (const [id, on] of [["stop", one && r && r.can_stop], ["resume", one && r && r.can_resume], ["like", one && r && r.has_config], ["about", one && r], ["delete", one && r && r.status !== "running"]]) {
      $(id).hidden = !on || !token;
    }
    $("stop").disabled = !!r && stopping === r.id;
    $("alone").hidden = shown().length < 2;
  }

  async function act(path, id, said) {
    $("said").textContent = "";
    try {
      await ask(path, { id });
      $("said").textContent = said;
      trouble("");
    } catch (e) { trouble(e.message); return false; }
    return true;
  }

  $("stop").addEventListener("click", async () => { const id = current; if (await act("/api/stop", id, "stopping: the step is finished and saved first")) { stopping = id; actions(); } });
  $("clear").addEventListener("click", () => act("/api/clear", "", "finished runs are cleared from the queue"));
  $("resume").addEventListener("click", () => act("/api/resume", current, "in the queue"));
  $("alone").addEventListener("click", () => { marks.clear(); changed(); });
  $("sort").value = store.get("sort") || "newest";
  if (!$("sort").value) $("sort").value = "newest";
  $("sort").addEventListener("change", () => { store.set("sort", $("sort").value); render(); });
  $("search").addEventListener("input", render);
  $("search").addEventListener("keydown", (e) => {
    if (e.key === "Escape") { e.target.value = ""; render(); e.target.blur(); }
    if (e.key === "Enter" && matching().length) { marks.clear(); choose(matching()[0].id); e.target.blur(); }
  });
  $("keys").addEventListener("click", () => $("help").showModal());

  function step(by) {
    const found = matching(), at = found.findIndex((r) => r.id === current);
    const next = found[at < 0 ? 0 : Math.max(0, Math.min(found.length - 1, at + by))];
    if (!next || next.id === current) return;
    choose(next.id);
    const li = $("runs").querySelector("li.current");
    if (li) li.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && e.target.type !== "checkbox") return;
    switch (e.key) {
      case "j": step(1); break;
      case "k": step(-1); break;
      case "/": $("fold").open = true; $("search").focus(); $("search").select(); break;
      case "c": if (current) { if (marks.has(current)) marks.delete(current); else marks.add(current); render(); } break;
      case "Escape": if (marks.size) { marks.clear(); changed(); } break;
      case "n": $("new").click(); break;
      case "?": $("help").showModal(); break;
      case "1": case "2": case "3": case "4": case "5": case "6": case "7": case "8": case "9": {
        const b = $("tabs").hidden ? null : $("tabs").children[+e.key - 1];
        if (b) { chooseTab(b.textContent); b.focus({ preventScroll: true }); }
        break;
      }
      default: return;
    }
    e.preventDefault();
  });

  let wide = width(), resized;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => { if (Math.abs(width() - wide) > wide / 5) { wide = width(); listen(); } }, 300);
  });
  // A browser has six connections to a server for all its tabs: one that is not seen for a minute gives its own back.
  let unseen;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(() => { listening.abort(); connected(false); }, 60000);
    else if (listening.signal.aborted) listen();
  });
  const narrow = matchMedia("(max-width: 60rem)");
  const fold = () => { $("fold").open = !narrow.matches; };
  narrow.addEventListener("change", fold); // a window made wide has room for the list
  fold();
  $("new").hidden = !token;
  $("rights").textContent = token ? "" : "This page only reads: open the address that trainer ui printed, with all that stands behind #, to start and stop runs.";
  if (!token) $("keys").textContent = "? read only";
  remember();
  listen();
  return { $, make, ask, trouble, show: (id) => { marks.clear(); choose(id); }, current: () => current, rows: () => rows, writes: !!token, panels, showTabs, post,
    send: async (file) => { const r = await post("/api/upload?name=" + encodeURIComponent(file.name), file, "application/octet-stream"), answer = await r.json(); if (!r.ok) throw new Error(answer.error); return answer; } };
})();
