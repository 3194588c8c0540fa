"use strict";
// Parts of a run's page that are no section of its report: rows of its data, token by token, and a chat with its adapter.
(() => {
  const { $, make, ask, post, panels } = ui;
  const most = 3000; // tokens of a row that are drawn

  // drawRows shows rows with what is trained of them. Texts of rows are set as text.
  ui.drawRows = (rows) => make("div", { class: "rows" }, ...rows.map((r) => {
    const box = make("article", {}, make("h3", {}, `${r.where} (${r.split}): ${r.tokens.length.toLocaleString("en")} tokens, ${r.trained_tokens.toLocaleString("en")} trained` + (r.cut_tokens ? `, ${r.cut_tokens} cut off` : "") + (r.note ? `; ${r.note}` : "")));
    let drawn = 0;
    for (const p of r.parts) {
      const text = make("p", { class: "tokens" }), count = p.to - p.from;
      for (const t of r.tokens.slice(p.from, Math.min(p.to, p.from + Math.max(0, most - drawn)))) {
        drawn++;
        const words = t.special ? t.piece : t.text;
        text.append(make("span", { class: (t.trained ? "trained" : "masked") + (t.special ? " special" : ""), title: `token ${t.id}, ${t.trained ? "trained" : "masked"}` + (t.end_of_turn ? ", ends the turn" : "") }, words));
      }
      box.append(make("p", { class: "role" }, `${p.role}: ${p.trained_tokens} of ${count} tokens trained`), text);
    }
    if (drawn >= most) box.append(make("p", { class: "note" }, `The first ${most} tokens are shown.`));
    return box;
  }));

  let rowsOf = "", first = 0;
  async function showRows(from) {
    const id = ui.current();
    for (const b of ["rows-show", "rows-before", "rows-after"]) $(b).disabled = true;
    $("rows-said").textContent = "reading rows …";
    try {
      const v = await ask("/api/preview", { id, value: String(from) });
      if (id !== ui.current()) return;
      first = v.first;
      $("rows").replaceChildren(ui.drawRows(v.rows));
      $("rows-said").textContent = `rows ${first + 1} to ${first + v.rows.length}`;
      $("rows-before").hidden = first === 0;
      $("rows-after").hidden = v.rows.length < 3;
      $("rows-show").hidden = true;
    } catch (e) { $("rows-said").textContent = e.message; }
    for (const b of ["rows-show", "rows-before", "rows-after"]) $(b).disabled = false;
  }
  $("rows-show").addEventListener("click", () => showRows(0));
  $("rows-before").addEventListener("click", () => showRows(Math.max(0, first - 3)));
  $("rows-after").addEventListener("click", () => showRows(first + 3));
  panels.push({ name: "Data", when: (r) => r && r.has_config && ui.writes, show(on) {
    $("rows-panel").hidden = !on;
    if (rowsOf === ui.current()) return;
    rowsOf = ui.current();
    $("rows").replaceChildren();
    $("rows-said").textContent = "";
    $("rows-show").hidden = false; $("rows-before").hidden = $("rows-after").hidden = true;
  } });

  const talk = chat.attach($("chat-root"), {
    send: (body, signal) => post("/api/chat", JSON.stringify({ id: loaded, chat: { messages: body.messages, temperature: body.temperature, max_tokens: body.max_tokens } }), "application/json", signal),
  });
  let loaded = "";
  function chatOn(on) {
    $("chat-root").hidden = $("chat-unload").hidden = !on;
    $("chat-load").hidden = on;
  }
  $("chat-load").addEventListener("click", async () => {
    const id = ui.current();
    $("chat-load").disabled = true;
    $("chat-said").textContent = "loading the model …";
    try {
      const v = await ask("/api/chat/open", { id });
      loaded = id;
      talk.clear();
      talk.models([v.model]);
      $("chat-said").textContent = v.adapter + (v.text ? ": the model has no chat template, so it continues each message as text" : "");
      if (id === ui.current()) { chatOn(true); talk.focus(); }
    } catch (e) { $("chat-said").textContent = e.message; }
    $("chat-load").disabled = false;
  });
  $("chat-unload").addEventListener("click", async () => {
    try { await ask("/api/chat/close", {}); } catch (e) { $("chat-said").textContent = e.message; return; }
    loaded = "";
    $("chat-said").textContent = "the model is unloaded";
    chatOn(false);
  });
  let chatOf = "";
  panels.push({ name: "Chat", when: (r) => r && r.can_chat && ui.writes, show(on) {
    $("chat-panel").hidden = !on;
    if (chatOf === ui.current()) return;
    chatOf = ui.current();
    chatOn(loaded !== "" && loaded === chatOf);
    if (loaded !== chatOf) $("chat-said").textContent = "";
  } });
  ui.showTabs();
})();
