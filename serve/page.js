"use strict";
// The chat page of trainer serve: the models that the server has, and an API key where it asks for one, kept for the tab.
(() => {
  const $ = (id) => document.getElementById(id);
  let key = "";
  try { key = sessionStorage.getItem("key") || ""; } catch { /* this page alone */ }
  const head = (more) => key ? { ...more, Authorization: "Bearer " + key } : { ...more };
  const talk = chat.attach($("root"), {
    send: (body, signal) => fetch("/v1/chat/completions", { method: "POST", headers: head({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal, cache: "no-store" }),
  });

  async function models() {
    try {
      const r = await fetch("/v1/models", { headers: head(), cache: "no-store" }), answer = await r.json();
      $("key-form").hidden = r.status !== 401;
      if (r.status === 401) { $("key-said").textContent = key ? "The server does not know this key." : "This server asks for its API key."; $("key").focus(); return; }
      if (!r.ok) throw new Error(answer.error && answer.error.message || r.statusText);
      talk.models(answer.data.map((m) => m.id));
      talk.focus();
    } catch (e) { talk.said("The server does not answer: " + e.message); }
  }

  $("key-form").addEventListener("submit", (e) => {
    e.preventDefault();
    key = $("key").value.trim();
    try { sessionStorage.setItem("key", key); } catch { /* this page alone */ }
    models();
  });
  models();
})();
