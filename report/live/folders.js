"use strict";
// What changes a run's folder: its name, group and note, and its deletion, which asks first.
(() => {
  const { $, make, ask, rows } = ui;
  const now = () => rows().find((r) => r.id === ui.current());
  let id = "";

  $("about").addEventListener("click", () => {
    const r = now();
    if (!r) return;
    id = r.id;
    $("about-dir").textContent = r.dir;
    $("about-name").value = r.title; $("about-group").value = r.group; $("about-note").value = r.note;
    $("about-said").textContent = "";
    $("groups").replaceChildren(...[...new Set(rows().map((r) => r.group).filter(Boolean))].map((g) => make("option", { value: g })));
    $("about-form").showModal();
    $("about-name").select();
  });
  $("about-cancel").addEventListener("click", () => $("about-form").close());
  $("about-save").addEventListener("click", async () => {
    try {
      await ask("/api/about", { id, title: $("about-name").value, group: $("about-group").value, note: $("about-note").value });
      $("about-form").close();
    } catch (e) { $("about-said").textContent = e.message; }
  });

  let name = "";
  $("delete").addEventListener("click", async () => {
    const r = now();
    if (!r) return;
    id = r.id;
    name = "";
    $("delete-said").textContent = "";
    $("delete-what").textContent = r.dir;
    $("delete-now").disabled = true;
    $("delete-form").showModal();
    try {
      const s = await ask("/api/size?id=" + id);
      name = s.name;
      $("delete-what").textContent = `${s.dir}: ${s.bytes}, ${s.checkpoints} ${s.checkpoints === 1 ? "checkpoint" : "checkpoints"}`;
      $("delete-now").disabled = false;
    } catch (e) { $("delete-said").textContent = e.message; }
  });
  $("delete-cancel").addEventListener("click", () => $("delete-form").close());
  $("delete-now").addEventListener("click", async () => {
    $("delete-now").disabled = true;
    try {
      await ask("/api/delete", { id, value: name });
      $("delete-form").close();
      $("announce").textContent = name + " is deleted";
      $("main").focus({ preventScroll: true });
    } catch (e) { $("delete-said").textContent = e.message; }
  });
})();
