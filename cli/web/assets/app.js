// What needs a script: parts that stay up to date, and uploads. Every page works without.
"use strict";

// Replaces a part with the server's text, and keeps the focus and the open folds.
function renew(part, text) {
  const focus = part.contains(document.activeElement) ? document.activeElement : null;
  const mark = focus && (focus.id ? "#" + CSS.escape(focus.id) : focus.getAttribute("href") ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]` : null);
  const open = new Set([...part.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  part.innerHTML = text;
  for (const summary of part.querySelectorAll("details > summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
  if (mark) part.querySelector(mark)?.focus();
}

for (const part of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(part.dataset.live);
  source.onmessage = (event) => {
    part.classList.remove("stale");
    renew(part, event.data);
  };
  source.onerror = () => part.classList.add("stale");
  addEventListener("pagehide", () => source.close());
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
    request.upload.onprogress = (progress) => (bar.value = (100 * progress.loaded) / progress.total);
    request.onload = () => (status.textContent = request.responseText);
    request.onerror = () => (status.textContent = "The upload broke off.");
    status.textContent = "Uploading…";
    request.send(file);
  });
}
