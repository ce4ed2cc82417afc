"use strict";

const at = (id) => document.getElementById(id);
const history = []; // {item, title}, oldest first; it lives in this page and nowhere else
let token = "", model = null, asked = 0, typing = 0;

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function button(text, label, act) {
  const made = element("button", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

const named = (one) => one.title || String(one.item);
const percent = (share) => `${Math.floor(100 * share)} %`;

async function ask(path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) }
    : { headers };
  const answer = await fetch(path, options);
  if (answer.status === 401) at("gate").hidden = false;
  const found = await answer.json();
  if (!answer.ok) throw new Error(typeof found.detail === "string" ? found.detail : "the service refused this request");
  return found;
}

function say(text, bad) {
  at("said").textContent = text;
  at("said").className = bad ? "bad" : "quiet";
}

async function search() {
  const text = at("search").value;
  try {
    const { items } = await ask(`/api/items?limit=12&q=${encodeURIComponent(text)}`);
    if (text !== at("search").value) return; // somebody typed on
    const have = new Set(history.map((one) => one.item));
    const left = items.filter((one) => !have.has(one.item));
    at("found").replaceChildren(...left.map((one) => {
      const line = element("li");
      line.append(button(named(one), `Add ${named(one)}`, () => add(one)));
      return line;
    }));
    at("hint").textContent = left.length ? (text ? (items.length === 12 ? "The first 12 of this name." : `${left.length} found.`) : "Without a text: what most people have had.")
      : "Nothing of this name.";
  } catch (error) { say(error.message, true); }
}

function add(one) {
  history.push({ item: one.item, title: one.title });
  at("search").value = "";
  at("search").focus();
  changed();
}

function move(place, text) {
  const [one] = history.splice(place, 1);
  if (text === "newest") history.push(one);
  changed();
}

function changed() {
  at("none").hidden = history.length > 0;
  at("clear").hidden = history.length === 0;
  at("history").replaceChildren(...history.map((one, place) => {
    const line = element("li"), buttons = element("span", undefined, "row");
    line.append(element("span", named(one)), buttons);
    if (model && model.ordered && place < history.length - 1) {
      buttons.append(button("newest", `Make ${named(one)} the newest`, () => move(place, "newest")));
    }
    buttons.append(button("remove", `Remove ${named(one)}`, () => move(place)));
    return line;
  }).reverse());
  search();
  recommend();
}

async function recommend() {
  const number = ++asked;
  try {
    const body = { history: history.map((one) => one.item), k: 10, explain: true, most_popular: Number(at("popular").value) };
    const { items } = await ask("/api/recommend", body);
    if (number !== asked) return; // a later question has been asked
    show(items);
    left(JSON.stringify(body).length);
    say(`${items.length} recommendations for a history of ${history.length}.`);
    document.documentElement.dataset.shown = String(number);
  } catch (error) { if (number === asked) { at("list").replaceChildren(); say(error.message, true); } }
}

function show(items) {
  const scores = items.map((one) => one.score), low = Math.min(0, ...scores), high = Math.max(...scores);
  at("list").replaceChildren(...items.map((one, place) => {
    const line = element("li"), bar = element("div", undefined, "meter"), width = element("span");
    line.append(element("span", `${place + 1}. ${named(one)}`, "name"));
    width.style.width = `${high > low ? Math.max(2, 100 * (one.score - low) / (high - low)) : 100}%`;
    bar.setAttribute("aria-hidden", "true");
    bar.append(width);
    line.append(bar);
    const facts = [`score ${one.score.toPrecision(3)}`];
    if (one.popularity !== null) facts.push(`more popular than ${percent(one.popularity)} of items`);
    line.append(element("p", facts.join(", "), "quiet"));
    if (one.because && one.because.length) {
      const reasons = one.because.map((r) => `${named(r)} (${r.part >= 0 ? "+" : ""}${r.part.toPrecision(2)})`);
      line.append(element("p", `Because of ${reasons.join(", ")}.`, "why"));
    }
    return line;
  }));
}

function left(bytes) {
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  at("left").textContent = here
    ? "Nothing. The model and its service run on this device, and the service keeps none of your history."
    : `Your history went to ${location.host} to be answered (${bytes} bytes). The service keeps none of it and writes it to no log.`;
}

function size(bytes) {
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : bytes >= 1e3 ? `${(bytes / 1e3).toFixed(1)} kB` : `${Math.round(bytes)} bytes`;
}

function crossed() {
  const { crossed: facts, rounds } = model, sent = size(facts.up_per_round), got = size(facts.down_per_round);
  const rows = [
    ["Stays on a device", facts.private === "nothing" ? "what somebody has had" : `what somebody has had; ${facts.private}`],
    ["A device sends", `${facts.uploaded}: ${sent} a round, ${size(facts.up_per_round * rounds)} in ${rounds} round${rounds === 1 ? "" : "s"}`],
    ["A device receives", `${got} a round`],
    ["The server sees", facts.sees],
    ["The server keeps", facts.server_keeps],
  ];
  at("crossed").replaceChildren(...rows.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
}

async function begin() {
  try {
    model = await ask("/api/model");
  } catch (error) { at("model").textContent = error.message; return; }
  at("gate").hidden = true;
  const how = model.at_once ? "" : " For every history it trains the private part anew, which takes a moment.";
  at("model").textContent = `${model.method} (${model.title}), trained on ${model.data}, ${model.items.toLocaleString("en")} items.${how}`;
  at("order").textContent = model.ordered ? "What is newer counts more." : "The order means nothing to this model.";
  at("tame").hidden = !model.popularity;
  crossed();
  changed();
}

at("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 120); });
at("search").addEventListener("keydown", (event) => {
  const first = at("found").querySelector("button");
  if (event.key === "Enter" && first) { event.preventDefault(); first.click(); }
});
at("popular").addEventListener("change", recommend);
at("clear").addEventListener("click", () => { history.length = 0; changed(); at("search").focus(); });
at("gate").addEventListener("submit", (event) => { event.preventDefault(); token = at("token").value.trim(); begin(); });
begin();
