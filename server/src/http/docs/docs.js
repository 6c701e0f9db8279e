// Shows openapi.json. Text goes in as text, never as markup.
"use strict";

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

let schemas = {};

function resolve(schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? { name, ...schemas[name] } : schema ?? {};
}

// An example of a schema, with types for values. `seen` stops at recursion.
function shape(schema, seen = []) {
  const found = resolve(schema);
  if (found.name && seen.includes(found.name)) return found.name;
  const inside = found.name ? [...seen, found.name] : seen;
  const options = found.oneOf ?? found.anyOf;
  if (options) {
    const real = options.filter((option) => option.type !== "null");
    const first = shape(real[0], inside);
    return real.length < options.length && typeof first === "string" ? `${first} | null` : first;
  }
  if (found.allOf) return Object.assign({}, ...found.allOf.map((part) => shape(part, inside)));
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (found.properties) {
    return Object.fromEntries(Object.entries(found.properties).map(([key, value]) => [key, shape(value, inside)]));
  }
  if (found.items) return [shape(found.items, inside)];
  const types = [].concat(found.type ?? "any");
  return types.join(" | ") + (found.format ? ` (${found.format})` : "");
}

function block(title, schema) {
  return [element("h3", {}, title), element("pre", { tabindex: "0" }, JSON.stringify(shape(schema), null, 2))];
}

function parameters(list) {
  if (!list?.length) return [];
  const rows = list.map((parameter) =>
    element("tr", {},
      element("td", {}, element("code", {}, parameter.name)),
      element("td", {}, `${parameter.in}, ${shape(parameter.schema)}${parameter.required ? ", required" : ""}`),
      element("td", {}, parameter.description ?? "")));
  return [element("h3", {}, "Parameters"), element("table", {}, element("tbody", {}, ...rows))];
}

function responses(all) {
  const rows = Object.entries(all).map(([status, response]) =>
    element("tr", {}, element("td", {}, element("code", {}, status)), element("td", {}, response.description ?? "")));
  const good = Object.entries(all).find(([status]) => status.startsWith("2"))?.[1]?.content ?? {};
  const bodies = Object.entries(good).flatMap(([type, content]) => (content.schema ? block(type, content.schema) : []));
  return [element("h3", {}, "Responses"), element("table", {}, element("tbody", {}, ...rows)), ...bodies];
}

function operation(method, path, about) {
  const body = Object.values(about.requestBody?.content ?? {})[0]?.schema;
  const node = element("details", { id: `${method}${path.replace(/[^a-z]+/gi, "-")}` },
    element("summary", {},
      element("span", { class: `method ${method}` }, method.toUpperCase()),
      element("span", { class: "path" }, path),
      element("span", {}, about.summary ?? ""),
      element("span", { class: "roles" }, (about["x-roles"] ?? []).join(", "))),
    element("p", {}, about.description ?? ""),
    ...parameters(about.parameters),
    ...(body ? block("Body", body) : []),
    ...responses(about.responses ?? {}));
  node.dataset.text = `${method} ${path} ${about.summary} ${about.description}`.toLowerCase();
  return node;
}

async function main() {
  const main = document.getElementById("endpoints");
  const answer = await fetch("/api/v1/openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  const api = await answer.json();
  schemas = api.components?.schemas ?? {};
  document.getElementById("about").textContent = `${api.info.description ?? ""} Version ${api.info.version}.`;
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const tag = about.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), operation(method, path, about)]);
    }
  }
  main.replaceChildren(...[...groups].map(([tag, nodes]) => element("section", {}, element("h2", {}, tag), ...nodes)));
  document.getElementById("find").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const section of main.children) {
      const nodes = [...section.querySelectorAll("details")];
      for (const node of nodes) node.hidden = !node.dataset.text.includes(wanted);
      section.hidden = nodes.every((node) => node.hidden);
    }
  });
}

main().catch((error) => {
  document.getElementById("endpoints").textContent = `Cannot show the API description: ${error.message}`;
});
