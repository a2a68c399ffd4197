// The parts of a page that a screen reader cannot name or reach. Runs in the browser, by the test.
const problems = [];
const all = (css) => [...document.querySelectorAll(css)];
const text = (element) => (element.getAttribute("aria-label") ?? element.textContent).trim();
const named = (element) => text(element) || all(`#${element.getAttribute("aria-labelledby")}`).length > 0;

for (const landmark of ["header", "main", "footer"])
  if (all(landmark).length !== 1) problems.push(`${all(landmark).length} elements ${landmark}`);
if (all("h1").length !== 1) problems.push(`${all("h1").length} elements h1`);
if (!document.documentElement.lang) problems.push("the page has no language");
if (!document.title.trim()) problems.push("the page has no title");

// A heading is at most one level below the heading before.
let level = 0;
for (const heading of all("h1, h2, h3, h4")) {
  const next = Number(heading.tagName[1]);
  if (next > level + 1) problems.push(`h${next} "${text(heading)}" follows h${level}`);
  if (!text(heading)) problems.push(`h${next} is empty`);
  level = next;
}

for (const control of all("input:not([type=hidden]), select, textarea"))
  if (![...control.labels].some((label) => label.textContent.trim()) && !control.getAttribute("aria-label"))
    problems.push(`no label: ${control.outerHTML}`);
for (const control of all("a, button, summary")) if (!named(control)) problems.push(`no name: ${control.outerHTML}`);
for (const part of all("nav, section, progress, meter"))
  if (!part.closest("[aria-hidden=true]") && !part.getAttribute("aria-label") && !part.getAttribute("aria-labelledby"))
    problems.push(`no name: ${part.outerHTML.slice(0, 120)}`);

// A drawing is decoration, or has a name; a chart stands in a figure with a caption, and its section has a table.
for (const drawing of all("svg")) {
  if (drawing.closest("[aria-hidden=true]") || drawing.parentElement.closest("svg")) continue;
  if (drawing.getAttribute("role") !== "img" || !(drawing.getAttribute("aria-label") || drawing.querySelector("title")))
    problems.push(`an unnamed drawing: ${drawing.outerHTML.slice(0, 120)}`);
  if (!drawing.closest("figure")?.querySelector("figcaption")) problems.push("a chart without a caption");
  if (!drawing.closest("section")?.querySelector("table")) problems.push("a chart without a table");
}

for (const table of all("table"))
  if (table.querySelectorAll("thead th[scope=col]").length === 0) problems.push("a table without headings");
const ids = all("[id]").map((element) => element.id);
for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) problems.push(`id ${id} is not unique`);
for (const element of all("[aria-labelledby], [aria-describedby]")) {
  const target = element.getAttribute("aria-labelledby") ?? element.getAttribute("aria-describedby");
  if (!document.getElementById(target)) problems.push(`nothing has the id ${target}`);
}
return problems;
