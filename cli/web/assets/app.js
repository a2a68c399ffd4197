// What needs a script: parts that stay up to date, and uploads. Every page works without.
"use strict";

const CONTROLS = "a, button, input, select, summary";
const SCROLLED = ".wide, pre.output";

// Replaces a part with the server's text, and keeps focus, open folds and positions. A part with selected text waits.
function renew(part, text) {
  const selection = getSelection();
  if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) return;
  const focus = [...part.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
  const open = [...part.querySelectorAll("details")].map((fold) => fold.open);
  const places = [...part.querySelectorAll(SCROLLED)].map((box) => [box.scrollLeft, box.scrollTop]);
  const before = states(part);
  part.innerHTML = text;
  part.querySelectorAll("details").forEach((fold, at) => (fold.open = open[at] ?? false));
  part.querySelectorAll(SCROLLED).forEach((box, at) => ([box.scrollLeft, box.scrollTop] = places[at] ?? [0, 0]));
  if (focus >= 0) part.querySelectorAll(CONTROLS)[focus]?.focus({ preventScroll: true });
  const after = states(part);
  if (after !== before) document.getElementById("announce").textContent = after;
}

// The states in a part, as a screen reader hears them.
function states(part) {
  return [...part.querySelectorAll(".state")].map((state) => state.textContent).join(", ");
}

// A hidden page closes its stream: browsers allow six connections to a server.
function live(part) {
  let source = null;
  const start = () => {
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      part.classList.remove("stale");
      renew(part, event.data);
    };
    source.addEventListener("end", () => location.reload());
    source.onerror = () => {
      part.classList.add("stale");
      // The server refuses the stream of an ended session, and the page then leads to the sign-in. The server also refuses
      // more streams than a user's share, which another page frees.
      if (source.readyState !== EventSource.CLOSED) return;
      const before = Number(sessionStorage.getItem("reloaded") ?? 0);
      setTimeout(() => {
        sessionStorage.setItem("reloaded", Date.now());
        location.reload();
      }, Date.now() - before < 60000 ? 60000 : 2000);
    };
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) start();
  });
  addEventListener("pagehide", () => source?.close());
  if (!document.hidden) start();
}

document.querySelectorAll("[data-live]").forEach(live);

// A number of bytes for people.
function size(bytes) {
  const unit = Math.min(4, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  return `${(bytes / 1024 ** unit).toFixed(unit ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    const bar = form.querySelector("progress");
    const file = form.elements.file.files[0];
    const request = new XMLHttpRequest();
    request.open("POST", `${form.dataset.upload}?dataset=${encodeURIComponent(form.elements.dataset.value)}`);
    request.setRequestHeader("X-Form", form.elements.form.value);
    const begun = performance.now();
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = (100 * loaded) / total;
      const rate = loaded / ((performance.now() - begun) / 1000);
      const left = Math.ceil((total - loaded) / rate);
      status.textContent = `Uploading: ${size(loaded)} of ${size(total)} at ${size(rate)}/s, ${left} s left`;
    };
    request.onload = () => (status.textContent = request.responseText);
    request.onerror = () => (status.textContent = "The upload broke off.");
    status.textContent = "Uploading…";
    request.send(file);
  });
}
