"use strict";
// The form for a new run. Its text is what counts: a field's change is written into it by the server, and each change of
// the text is checked by the program's own parser, which fills the fields again.
(() => {
  const { $, make, ask, trouble } = ui;
  const text = $("text"), inputs = new Map();
  let form = null, checked = 0, planned = null;

  const first = ["base_model", "adapter", "dataset.path", "dataset.format", "output_dir", "training.epochs", "training.max_steps", "training.batch_size", "training.learning_rate",
    "lora.r", "lora.alpha", "dataset.max_length", "device", "vram"];

  async function open(begin) {
    try {
      form = form || await ask("/api/form");
    } catch (e) { trouble(e.message); return; }
    if (!inputs.size) build();
    $("upload-field").hidden = !form.data;
    planned = null;
    $("plan").replaceChildren();
    verdict(false, "");
    $("form-said").textContent = "";
    if (begin !== undefined) { $("template").value = ""; text.value = begin; } else use(form.templates[0]);
    if (!$("form").open) $("form").showModal();
    await check();
  }

  function use(t) {
    $("template").value = t.name;
    $("about-template").textContent = t.about;
    text.value = t.text;
  }

  function build() {
    $("template").append(make("option", { value: "" }, "the text below"), ...form.templates.map((t) => make("option", { value: t.name }, t.name)));
    const sections = new Map();
    for (const f of form.fields) {
      const name = first.includes(f.key) ? "" : f.key.includes(".") ? f.key.slice(0, f.key.indexOf(".")) : "other";
      if (!sections.has(name)) sections.set(name, []);
      sections.get(name).push(f);
    }
    sections.get("").sort((a, b) => first.indexOf(a.key) - first.indexOf(b.key));
    $("fields").append(...sections.get("").map(field));
    for (const [name, all] of sections) if (name) $("fields").append(make("details", {}, make("summary", {}, name), ...all.map(field)));
  }

  function field(f) {
    const id = "field-" + f.key, shown = f.default === undefined || f.default === "" ? "" : "default " + f.default;
    let input;
    if (f.choices) {
      input = make("select", { id }, make("option", { value: "" }, shown || "–"), ...f.choices.map((c) => make("option", { value: c }, c)));
    } else {
      input = make("input", { id, type: "text", placeholder: shown, autocomplete: "off", spellcheck: "false", inputmode: f.kind === "number" ? "decimal" : null });
    }
    input.setAttribute("aria-describedby", id + "-help " + id + "-wrong");
    if (f.required) input.required = true;
    input.addEventListener("change", () => edit(f.key, input.value));
    inputs.set(f.key, input);
    return make("div", { class: "field" }, make("label", { for: id }, f.key, f.required ? make("small", {}, " (needed)") : ""), input,
      make("p", { class: "help", id: id + "-help" }, f.about), make("p", { class: "wrong", id: id + "-wrong" }));
  }

  // Edits follow each other: each changes the text that the one before has made.
  let edits = Promise.resolve(), pending = 0;
  function edit(key, value) {
    pending++;
    $("make-plan").disabled = true;
    edits = edits.then(async () => {
      try {
        text.value = (await ask("/api/edit", { config: text.value, key, value })).config;
        pending--;
      } catch (e) { pending--; problems([{ key, message: e.message }]); return; }
      await check();
    });
  }

  function problems(all) {
    for (const [key, input] of inputs) {
      const mine = all.filter((p) => p.key === key), box = input.parentNode;
      box.classList.toggle("bad", mine.length > 0);
      box.lastElementChild.textContent = mine.map((p) => p.message).join("\n");
      if (mine.length) input.setAttribute("aria-invalid", "true"); else input.removeAttribute("aria-invalid");
      if (mine.length && input.closest("details")) input.closest("details").open = true;
    }
    $("problems").replaceChildren(...all.map((p) => make("li", {}, (p.line ? `line ${p.line}: ` : "") + p.message)));
    $("make-plan").disabled = all.length > 0 || pending > 0;
    if (all.length) $("start").disabled = true;
  }

  async function check() {
    const mine = ++checked, config = text.value;
    let c;
    try {
      c = await ask("/api/check", { config });
    } catch (e) { if (mine === checked) problems([{ message: e.message }]); return; }
    if (mine !== checked) return;
    for (const [key, input] of inputs) if (document.activeElement !== input || !input.value) input.value = c.values[key] ?? "";
    problems(c.problems);
    ready();
  }

  // ready lets a run start whose plan was shown and fits.
  function ready() {
    const same = planned && planned.config === text.value;
    $("start").disabled = !same || !planned.fits || $("problems").children.length > 0;
    if (planned && !same) { $("plan").replaceChildren(); verdict(false, ""); $("form-said").textContent = "the plan is of another configuration: plan again"; planned = null; }
  }

  // verdict says beside the buttons, which are always in view, whether the plan fits; an empty text takes it away.
  function verdict(fits, text) {
    $("plan-said").textContent = text;
    $("plan-said").className = fits ? "fits" : "over";
    $("plan-said").hidden = !text;
  }

  $("form-rows").addEventListener("click", async () => {
    $("form-rows").disabled = true;
    await edits;
    $("form-said").textContent = "reading rows …";
    try {
      const { rows } = await ask("/api/preview", { config: text.value, value: "0" });
      $("plan").replaceChildren(ui.drawRows(rows));
      $("form-said").textContent = "";
      $("plan").scrollIntoView({ block: "nearest" });
    } catch (e) { $("form-said").textContent = ""; $("plan").replaceChildren(make("p", { class: "over" }, e.message)); }
    $("form-rows").disabled = false;
  });

  $("upload").addEventListener("change", async () => {
    const file = $("upload").files[0];
    if (!file) return;
    if (file.size > form.most_data) { $("upload-said").textContent = "the file is larger than what is taken"; return; }
    $("upload-said").textContent = "uploading …";
    try {
      const { path } = await ui.send(file);
      $("upload-said").textContent = path;
      edit("dataset.path", path);
    } catch (e) { $("upload-said").textContent = e.message; }
    $("upload").value = "";
  });

  let typed;
  text.addEventListener("input", () => { $("template").value = ""; $("about-template").textContent = ""; clearTimeout(typed); typed = setTimeout(check, 400); });
  $("template").addEventListener("change", () => { const t = form.templates.find((t) => t.name === $("template").value); if (t) { use(t); check(); } });

  $("make-plan").addEventListener("click", async () => {
    $("make-plan").disabled = true;
    await edits;
    const config = text.value;
    $("form-said").textContent = "planning …";
    try {
      const p = await ask("/api/plan", { config });
      planned = { config, fits: p.fits };
      const picture = make("div");
      picture.innerHTML = p.html; // made and escaped by the server
      verdict(p.fits, p.text);
      $("plan").replaceChildren(picture, make("details", {}, make("summary", {}, "the whole plan"), make("pre", { tabindex: 0 }, p.more)));
      $("form-said").textContent = "";
    } catch (e) { $("form-said").textContent = ""; $("plan").replaceChildren(); verdict(false, e.message); planned = null; }
    $("make-plan").disabled = $("problems").children.length > 0 || pending > 0;
    ready();
    $("plan").scrollIntoView({ block: "nearest" });
  });

  $("start").addEventListener("click", async () => {
    $("start").disabled = true;
    try {
      const { id } = await ask("/api/start", { config: text.value });
      $("form").close();
      ui.show(id);
    } catch (e) { $("form-said").textContent = e.message; }
  });
  $("cancel").addEventListener("click", () => $("form").close());
  $("new").addEventListener("click", () => open());
  $("like").addEventListener("click", async () => {
    try { await open((await ask("/api/config?id=" + ui.current())).text); } catch (e) { trouble(e.message); }
  });
})();
