// Replaces what has changed every two seconds. Without this the page reloads itself every ten.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const PARTS = ["content", "state", "written"];
  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const button = document.createElement("button");
  button.id = "pause";
  button.type = "button";
  live.append(button);
  let paused = false;

  function show() {
    button.textContent = paused ? "Update again" : "Stop updating";
  }

  function keepOpen(fresh) {
    for (const one of fresh.querySelectorAll("details[id]")) {
      const shown = document.getElementById(one.id);
      if (shown) one.open = shown.open;
    }
  }

  // Whoever fills in the search is not interrupted.
  function isTyping() {
    const focused = document.activeElement;
    return Boolean(focused && focused.closest("form"));
  }

  function replace(fresh) {
    const inside = document.activeElement && document.activeElement.closest("details[id]");
    const focused = inside ? inside.id : null;
    const sorted = document.activeElement && document.activeElement.dataset.sort;
    keepOpen(fresh);
    for (const id of PARTS) {
      document.getElementById(id).replaceChildren(...fresh.getElementById(id).childNodes);
    }
    document.title = fresh.title;
    const again = focused && document.getElementById(focused);
    if (again) again.querySelector("summary").focus({ preventScroll: true });
    const link = sorted && document.querySelector(`th a[data-sort="${sorted}"]`);
    if (link) link.focus({ preventScroll: true });
  }

  async function update() {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(location.pathname + location.search, { cache: "no-store", signal: AbortSignal.timeout(EVERY_MS * 3) });
        if (!answer.ok) throw new Error(String(answer.status));
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!paused && document.getSelection().isCollapsed && !isTyping()) replace(fresh);
        if (lost.textContent) lost.textContent = "";
      } catch {
        const text = "The service does not answer; this is what it said last.";
        if (lost.textContent !== text) lost.textContent = text;
      }
    }
    setTimeout(update, EVERY_MS);
  }

  button.addEventListener("click", () => {
    paused = !paused;
    show();
  });
  show();
  setTimeout(update, EVERY_MS);
})();
