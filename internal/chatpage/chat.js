"use strict";
// A conversation with a model. attach(root, options) builds it inside an element. options.send(body, signal) promises the
// response to a request in the form of OpenAI's chat completions, as a stream of server-sent events. What a model says is
// set as text.
const chat = (() => {
  function make(name, attributes, ...inside) {
    const e = document.createElement(name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    e.append(...inside);
    return e;
  }

  function attach(root, options) {
    const box = make("div", { class: "chat" });
    const models = make("select", { "aria-label": "model" }), temperature = make("input", { type: "number", min: 0, max: 2, step: 0.1, value: 0.7 });
    const most = make("input", { type: "number", min: 1, max: 32768, step: 1, value: 256 }), system = make("textarea", { rows: 3, placeholder: "as in training", "aria-label": "system message" });
    const fresh = make("button", { type: "button" }, "New conversation"), list = make("ol", { class: "messages", role: "log", "aria-label": "conversation", tabindex: 0 });
    const text = make("textarea", { rows: 3, "aria-label": "message", placeholder: "Message (Enter sends, Shift+Enter is a new line)" });
    const send = make("button", { type: "button", class: "send" }, "Send"), stop = make("button", { type: "button" }, "Stop"), said = make("p", { class: "said", role: "status" });
    stop.disabled = true;
    const modelLabel = make("label", {}, "model", models);
    box.append(make("div", { class: "top" }, modelLabel, make("label", {}, "temperature", temperature), make("label", {}, "longest answer, tokens", most), fresh),
      make("details", {}, make("summary", {}, "System message"), system), list, make("div", { class: "ask" }, text, make("div", {}, send, stop)), said);
    root.append(box);
    let messages = [], running = null;

    function bubble(role, content) {
      const words = make("span", {}, content), li = make("li", { class: role === "user" ? "user" : "model" }, make("b", {}, role === "user" ? "you" : models.value || "model"), words);
      list.append(li);
      li.scrollIntoView({ block: "nearest" });
      return { li, words };
    }

    function busy(on) { send.disabled = on; stop.disabled = !on; }

    async function ask() {
      const content = text.value.trim();
      if (!content || running) return;
      text.value = "";
      messages.push({ role: "user", content });
      bubble("user", content);
      const answer = bubble("assistant", ""), began = performance.now();
      running = new AbortController();
      busy(true);
      said.textContent = "answering …";
      let got = "", pieces = 0, end = "";
      try {
        const body = { model: models.value, messages: [...(system.value.trim() ? [{ role: "system", content: system.value.trim() }] : []), ...messages], stream: true, temperature: Number(temperature.value), max_tokens: Math.max(1, Math.round(Number(most.value)) || 1) };
        const r = await options.send(body, running.signal);
        if (!r.ok) {
          const wrong = await r.json().catch(() => ({}));
          throw new Error((wrong.error && wrong.error.message) || wrong.error || r.statusText);
        }
        const read = r.body.getReader(), decoder = new TextDecoder();
        for (let rest = ""; ;) {
          const { done, value } = await read.read();
          if (done) break;
          rest += decoder.decode(value, { stream: true });
          for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
            const line = rest.slice(0, at).split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("");
            if (!line || line === "[DONE]") continue;
            const v = JSON.parse(line);
            if (v.error) throw new Error(v.error.message || String(v.error));
            const choice = (v.choices || [])[0] || {};
            const piece = choice.delta ? choice.delta.content : choice.text;
            if (piece) { got += piece; pieces++; answer.words.textContent = got; answer.li.scrollIntoView({ block: "nearest" }); }
            if (choice.finish_reason) end = choice.finish_reason;
          }
        }
        said.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s` + (end === "length" ? "; cut off at the longest answer" : "");
      } catch (e) {
        if (running.signal.aborted) said.textContent = "stopped";
        else { answer.li.classList.add("wrong"); answer.words.textContent = got + (got ? "\n" : "") + e.message; said.textContent = ""; }
      }
      if (got) messages.push({ role: "assistant", content: got }); else messages.pop();
      running = null;
      busy(false);
      text.focus({ preventScroll: true });
    }

    send.addEventListener("click", ask);
    stop.addEventListener("click", () => { if (running) running.abort(); });
    const clear = () => { if (running) running.abort(); messages = []; list.replaceChildren(); said.textContent = ""; };
    fresh.addEventListener("click", () => { clear(); text.focus(); });
    text.addEventListener("keydown", (e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); ask(); } });
    return {
      // models sets the names that a reader chooses from; the last is chosen. With one name there is nothing to choose.
      models(names) {
        models.replaceChildren(...names.map((n) => make("option", { value: n }, n)));
        models.value = names[names.length - 1] || "";
        modelLabel.hidden = names.length < 2;
      },
      clear,
      said(t) { said.textContent = t; },
      focus() { text.focus({ preventScroll: true }); },
    };
  }
  return { attach, make };
})();
