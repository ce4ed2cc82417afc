"use strict";

function element(tag, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return made;
}

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items || {})}`;
  return schema.type || "anything";
}

async function begin() {
  const said = await (await fetch("/openapi.json")).json();
  const cards = [];
  for (const [path, calls] of Object.entries(said.paths)) {
    for (const [verb, call] of Object.entries(calls)) {
      const card = element("section");
      card.append(element("h2", `${verb.toUpperCase()} ${path}`), element("p", call.description || call.summary));
      const list = element("dl");
      for (const one of call.parameters || []) {
        list.append(element("dt", `${one.name} (${one.in})`), element("dd", kind(one.schema)));
      }
      const body = call.requestBody && call.requestBody.content["application/json"].schema;
      const fields = body && body.$ref ? said.components.schemas[kind(body)].properties : {};
      for (const [name, field] of Object.entries(fields)) {
        list.append(element("dt", name), element("dd", [kind(field), field.description].filter(Boolean).join(": ")));
      }
      card.append(list);
      cards.push(card);
    }
  }
  document.getElementById("calls").replaceChildren(...cards);
}
begin();
