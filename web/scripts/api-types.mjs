// Writes src/api/schema.ts from openapi.json: a type for each schema, and a map of all operations. It refuses what it
// does not know, so that a schema it cannot express never becomes a type that is wrong or empty.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** What every path begins with; operations are named without it. */
const BASE = "/api/v1";
const METHODS = ["get", "post", "put", "patch", "delete"];
const PLAIN = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

/** Keywords that a type can express, and those that say nothing about it. */
const KNOWN = new Set(
  "$ref oneOf anyOf allOf enum const type items properties required additionalProperties".split(" ").concat(
    "title description example examples default format minimum maximum deprecated".split(" "),
  ),
);

const indented = (text) => text.replaceAll(/^(?=.)/gm, "  ");
const named = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name));

/** A documentation comment, or nothing. */
function comment(text) {
  if (text === undefined || text === "") return "";
  const lines = text.replaceAll("*/", "*\\/").split("\n");
  return lines.length === 1 ? `/** ${lines[0]} */\n` : `/**\n${lines.map((line) => ` * ${line}`.trimEnd()).join("\n")}\n */\n`;
}

function union(types) {
  const different = [...new Set(types)];
  // `null` last reads best.
  return [...different.filter((type) => type !== "null"), ...different.filter((type) => type === "null")].join(" | ");
}

/** In parentheses unless the type is one thing already. */
const grouped = (type) => (/^(\w+|\{[^]*\})$/.test(type) ? type : `(${type})`);

/** The TypeScript type of a schema. `where` is for the error. */
export function typeOf(schema, where) {
  const unknown = Object.keys(schema).filter((keyword) => !KNOWN.has(keyword));
  if (unknown.length > 0) throw new Error(`${where}: the schema keyword ${unknown.join(", ")} is not supported`);
  if (schema.$ref !== undefined) {
    const name = /^#\/components\/schemas\/(\w+)$/.exec(schema.$ref)?.[1];
    if (name === undefined) throw new Error(`${where}: ${schema.$ref} does not name a schema of this document`);
    return name;
  }
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices !== undefined) return union(choices.map((choice) => typeOf(choice, where)));
  if (schema.allOf !== undefined) return schema.allOf.map((part) => grouped(typeOf(part, where))).join(" & ");
  if (schema.enum !== undefined) return union(schema.enum.map((word) => JSON.stringify(word)));
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const types = [schema.type].flat();
  return union(types.map((type) => typeOfOne(type, schema, where)));
}

function typeOfOne(type, schema, where) {
  if (type === "array") {
    if (schema.items === undefined) throw new Error(`${where}: an array without items`);
    return `${grouped(typeOf(schema.items, `${where}[]`))}[]`;
  }
  if (type === "object") return schema.properties === undefined ? "Record<string, unknown>" : objectOf(schema, where);
  const plain = PLAIN[type];
  if (plain === undefined) throw new Error(`${where}: the type ${type} is not supported`);
  return plain;
}

function objectOf({ properties, required = [] }, where) {
  const fields = Object.entries(properties).map(([name, field]) => {
    const mark = required.includes(name) ? "" : "?";
    // A field that may be null is a choice, with its description at the other option.
    const about = field.description ?? field.oneOf?.find((choice) => choice.description !== undefined)?.description;
    return `${comment(about)}${named(name)}${mark}: ${typeOf(field, `${where}.${name}`)};\n`;
  });
  return `{\n${indented(fields.join(""))}}`;
}

/** Parameters of a kind as an object: those of a path are always there, those of a query never need to be. */
function parameters(operation, kind, where) {
  const found = (operation.parameters ?? []).filter((parameter) => parameter.in === kind);
  if (found.length === 0) return "Record<never, never>";
  const fields = found.map(({ name, description, required, schema }) => {
    const type = typeOf(schema, `${where}?${name}`);
    return `${comment(description)}${named(name)}${required === true ? "" : "?"}: ${type};\n`;
  });
  return `{\n${indented(fields.join(""))}}`;
}

/** The JSON of a request or an answer; `undefined` when it has none. */
const json = (content, where) =>
  content?.["application/json"] === undefined ? "undefined" : typeOf(content["application/json"].schema, where);

function operationOf(method, path, operation) {
  if (!path.startsWith(`${BASE}/`)) throw new Error(`${path} is not below ${BASE}`);
  const name = `${method.toUpperCase()} ${path.slice(BASE.length)}`;
  const good = Object.entries(operation.responses).filter(([status]) => status.startsWith("2"));
  if (good.length !== 1) throw new Error(`${name}: one answer with a status of 2xx is expected, not ${good.length}`);
  const fields = [
    `path: ${parameters(operation, "path", name)};`,
    `query: ${parameters(operation, "query", name)};`,
    `body: ${json(operation.requestBody?.content, `${name} body`)};`,
    `answer: ${json(good[0][1].content, `${name} answer`)};`,
  ];
  return `${comment(operation.summary)}${JSON.stringify(name)}: {\n${indented(fields.join("\n"))}\n};`;
}

/** The whole module. */
export function typesOf(document) {
  const schemas = Object.entries(document.components.schemas).map(([name, schema]) => {
    const type = typeOf(schema, name);
    // An interface where there can be one: its name shows in errors instead of its fields.
    const isObject = type.startsWith("{") && schema.properties !== undefined;
    return `${comment(schema.description)}export ${isObject ? `interface ${name} ${type}` : `type ${name} = ${type};`}\n`;
  });
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method] !== undefined).map((method) => operationOf(method, path, item[method])),
  );
  return [
    "// Generated from openapi.json by scripts/api-types.mjs; changes made here are lost.\n",
    ...schemas,
    `/** What each operation takes and answers, by method and path below ${BASE}. */`,
    `export interface Operations {\n${indented(operations.join("\n"))}\n}\n`,
  ].join("\n");
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const root = new URL("../", import.meta.url);
  const document = JSON.parse(readFileSync(new URL("openapi.json", root), "utf8"));
  writeFileSync(new URL("src/api/schema.ts", root), typesOf(document));
}
