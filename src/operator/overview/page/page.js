// The page lives by asking every few seconds whether anything has changed. Nobody is asked while the page is hidden. What
// comes is markup of the controller, in which all names are escaped; what is read out of it is only ever set as text.
"use strict";
const EVERY = 5000;
const content = document.getElementById("content");
const detail = document.getElementById("detail");
const form = document.querySelector("form");
const [state, time] = document.getElementById("live").children;
let tag = content.dataset.tag;
let asked = 0;
let next;

// === What has changed

async function look() {
  clearTimeout(next);
  const turn = ++asked;
  const query = location.search;
  const begun = performance.now();
  let isAnswered = false;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch("content" + query, { headers, cache: "no-store" });
    if (answer.status === 200) {
      const text = await answer.text();
      if (turn === asked) {
        tag = answer.headers.get("ETag");
        replace(text);
      }
    }
    isAnswered = answer.status === 200 || answer.status === 304;
  } catch {
    // Said below.
  }
  if (turn !== asked) return;
  say(isAnswered);
  // A page that takes long to make or to show is asked for less often.
  if (!document.hidden) next = setTimeout(look, Math.max(EVERY, 20 * (performance.now() - begun)));
}

function say(isAnswered) {
  document.body.classList.toggle("stale", !isAnswered);
  const text = isAnswered ? "live" : "no answer; what is shown is of";
  if (state.textContent !== text) state.textContent = text;
  if (isAnswered) time.textContent = new Date().toISOString().slice(11, 19) + " UTC";
}

// What tells one part that opens from others, however many there are before it.
const part = (one) => one.id || one.closest("article").querySelector("h3").textContent + one.textContent.split(" ")[0];

// The place of a tile that outlives a replacement.
const place = (tile) => tile && [tile.closest("article").dataset.node, name(tile)].join("/");
const name = (tile) => tile.firstChild.textContent.trim();
const tiles = () => [...content.querySelectorAll(".t")];

function replace(text) {
  const focused = place(document.activeElement.closest?.(".t"));
  const open = new Map([...content.querySelectorAll("details")].map((one) => [part(one), one.open]));
  const shown = detail.hidden ? null : detail.dataset.place;
  const parsed = new DOMParser().parseFromString(text, "text/html");
  content.replaceChildren(...parsed.body.childNodes);
  for (const one of content.querySelectorAll("details")) one.open = open.get(part(one)) ?? one.open;
  const find = (wanted) => wanted && tiles().find((tile) => place(tile) === wanted);
  find(focused)?.focus({ preventScroll: true });
  const still = find(shown);
  if (still) show(still);
  else close();
  prepare();
}

function prepare() {
  document.title = content.querySelector("h1").textContent + " · localpool";
  // Without anything wrong the key Tab leads to the first tile, and the arrow keys further.
  const first = content.querySelector(".t");
  if (first && !content.querySelector(".t.b")) first.tabIndex = 0;
}

// === What is said of one device

function lines(tile) {
  // A browser that runs this needs no tooltip as well.
  if (tile.title) {
    tile.dataset.lines = tile.title;
    tile.setAttribute("aria-label", tile.title.replaceAll("\n", "; "));
    tile.removeAttribute("title");
  }
  return tile.dataset.lines.split("\n");
}

function show(tile) {
  const node = tile.closest("article").dataset.node;
  const parts = lines(tile).map((line, at) => {
    const element = document.createElement(line.startsWith("kubectl ") ? "code" : at === 0 ? "h3" : "p");
    element.textContent = at === 0 ? `${node}: ${line}` : line;
    return element;
  });
  detail.lastElementChild.replaceChildren(...parts);
  detail.dataset.place = place(tile);
  detail.hidden = false;
}

// A click holds the panel: on the way to its command the pointer crosses other tiles.
let isHeld = false;
for (const kind of ["pointerover", "focusin", "click"]) {
  content.addEventListener(kind, (event) => {
    const tile = event.target.closest(".t");
    if (!tile || (isHeld && kind === "pointerover")) return;
    isHeld = kind === "click";
    show(tile);
  });
}

function close() {
  isHeld = false;
  detail.hidden = true;
}
detail.firstElementChild.addEventListener("click", close);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
  if (event.key === "/" && event.target !== form.q) {
    event.preventDefault();
    form.q.focus();
  }
  const tile = event.target.closest?.(".t");
  const to = tile && neighbour(tile, event.key);
  if (to) {
    event.preventDefault();
    to.focus();
  }
});

function neighbour(tile, key) {
  const all = tiles();
  const card = tile.closest("article");
  const first = (article) => article?.querySelector(".t");
  switch (key) {
    case "ArrowRight": return all[all.indexOf(tile) + 1];
    case "ArrowLeft": return all[all.indexOf(tile) - 1];
    case "ArrowDown": return first(card.nextElementSibling);
    case "ArrowUp": return first(card.previousElementSibling);
    case "Home": return all[0];
    case "End": return all.at(-1);
  }
}

// === What is to be shown

let typed;
function filter() {
  const query = new URLSearchParams();
  if (form.q.value.trim()) query.set("q", form.q.value);
  if (form.show.value !== "all") query.set("show", form.show.value);
  const search = query.size ? "?" + query : "";
  if (search === location.search) return;
  history.replaceState(null, "", search || location.pathname);
  tag = null;
  look();
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  filter();
});
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(filter, 250);
});
document.addEventListener("visibilitychange", () => document.hidden || look());

prepare();
look();
