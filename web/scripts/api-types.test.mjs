import { describe, expect, it } from "vitest";

import { typeOf, typesOf } from "./api-types.mjs";

const type = (schema) => typeOf(schema, "X");

describe("the type of a schema", () => {
  it("is as exact as the schema", () => {
    expect(type({ type: "integer", format: "int64" })).toBe("number");
    expect(type({ type: ["string", "null"] })).toBe("string | null");
    expect(type({ oneOf: [{ type: "null" }, { $ref: "#/components/schemas/Verify" }] })).toBe("Verify | null");
    expect(type({ type: "array", items: { type: ["number", "null"] } })).toBe("(number | null)[]");
    expect(type({ type: "string", enum: ["data", "recipe"] })).toBe('"data" | "recipe"');
    expect(type({ type: "object" })).toBe("Record<string, unknown>");
  });

  it("tells fields that may be absent from fields that may be null", () => {
    const schema = { type: "object", required: ["a"], properties: { a: { type: ["string", "null"] }, "b/c": { type: "boolean" } } };
    expect(type(schema)).toBe('{\n  a: string | null;\n  "b/c"?: boolean;\n}');
  });

  it("joins the parts of a flattened structure", () => {
    const part = { type: "object", required: ["id"], properties: { id: { type: "string", description: "Its name */" } } };
    expect(type({ allOf: [{ $ref: "#/components/schemas/Vm" }, part] })).toBe("Vm & {\n  /** Its name *\\/ */\n  id: string;\n}");
  });

  it("is refused where it would be a guess", () => {
    expect(() => type({ type: "object", patternProperties: {} })).toThrow("X: the schema keyword patternProperties");
    expect(() => type({})).toThrow("X: the type undefined");
    expect(() => type({ type: "array" })).toThrow("an array without items");
    expect(() => type({ $ref: "other.json#/Vm" })).toThrow("other.json");
  });
});

describe("an operation", () => {
  const document = (operation) => ({ components: { schemas: {} }, paths: { "/api/v1/vms/{vm}": { get: operation } } });
  const answer = { 200: { content: { "application/json": { schema: { type: "string" } } } } };

  it("has its parameters, its body and its answer", () => {
    const parameters = [
      { name: "vm", in: "path", required: true, schema: { type: "string" } },
      { name: "limit", in: "query", required: false, schema: { type: ["integer", "null"] } },
    ];
    const text = typesOf(document({ summary: "One VM", parameters, responses: { ...answer, 404: {} } }));
    expect(text).toContain('/** One VM */\n  "GET /vms/{vm}": {');
    expect(text.replaceAll(/\s+/g, " ")).toContain(
      "path: { vm: string; }; query: { limit?: number | null; }; body: undefined; answer: string;",
    );
  });

  it("must have one good answer", () => {
    expect(() => typesOf(document({ responses: { 404: {} } }))).toThrow("GET /vms/{vm}: one answer");
  });
});
