"use strict";
// tables: a click on a heading sorts by it, a second click the other way; empty cells stay last
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    const head = button.parentElement, up = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0], key = (row) => row.cells[column].dataset.key;
    const number = head.classList.contains("number");
    [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return (number ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
    }).forEach((row) => body.append(row));
  }));
}
// the network: what is pointed at, or has the focus, is said below it
const tip = document.getElementById("tip");
for (const shape of document.querySelectorAll("[data-words]")) {
  const say = () => { tip.textContent = shape.dataset.words; };
  for (const event of ["mouseenter", "focus", "click"]) shape.addEventListener(event, say);
}
// a printed page has all sections open, and those that were closed closed again afterwards
let closed = [];
addEventListener("beforeprint", () => { closed = [...document.querySelectorAll("details:not([open])")]; closed.forEach((d) => { d.open = true; }); });
addEventListener("afterprint", () => closed.forEach((d) => { d.open = false; }));
// a link to a closed section opens it
const reveal = () => { const at = document.getElementById(location.hash.slice(1)); if (at && at.tagName === "DETAILS") at.open = true; };
addEventListener("hashchange", reveal); reveal();
