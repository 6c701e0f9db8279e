import { describe, expect, it, vi } from "vitest";

import { fill, get, post, request, setCsrf, setOnRefused, url } from "./client";
import { ApiError, explain } from "./error";
import { Refusal, serve } from "../test/server";

describe("addresses", () => {
  it("hold the path's parameters as one part each", async () => {
    const log = serve({});
    await get("/vms/{namespace}/{vm}", { params: { namespace: "a/b", vm: "web 1" } }).catch(() => null);
    expect(log[0]?.path).toBe("/vms/a%2Fb/web%201");
    expect(() => fill("/details/{id}")).toThrow("/details/{id} needs id");
  });

  it("leave out what is absent and join lists", () => {
    expect(url("/details", { vm: "web", job: "", q: null, status: ["failed", "expired"], limit: 200 })).toBe(
      "/api/v1/details?vm=web&status=failed%2Cexpired&limit=200",
    );
    expect(url("/totals", { namespace: "" })).toBe("/api/v1/totals");
  });
});

describe("requests", () => {
  it("carry the CSRF token only where something changes", async () => {
    const log = serve({ "GET /totals": {}, "POST /logout": null });
    setCsrf("secret");
    await get("/totals");
    await post("/logout");
    expect(log.map((asked) => asked.headers.get("x-csrf-token"))).toEqual([null, "secret"]);
  });

  it("turn a problem document into an error that keeps its words", async () => {
    serve({ "GET /details": new Refusal(400, { title: "Bad Request", code: "invalid", detail: "sort: allowed are …" }) });
    const error = await get("/details").catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 400, code: "invalid", detail: "sort: allowed are …", passing: false });
    expect(explain(error)).toMatchObject({ title: "The server rejected the request", detail: "sort: allowed are …" });
  });

  it("say what to do next, by the code", async () => {
    serve({});
    const error = await get("/vms/{namespace}/{vm}", { params: { namespace: "default", vm: "web" } }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 404, code: "not-found" });
    expect(explain(error).title).toBe("Not found");
    expect(explain(error).next).toContain("your token does not cover its namespace");
  });

  it("make something useful of an answer that is no problem document", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response("<html>", { status: 502, statusText: "Bad Gateway" })));
    const error = await get("/totals").catch((caught: unknown) => caught);
    expect(error).toMatchObject({ status: 502, code: "http_502", title: "Bad Gateway", passing: true });
  });

  it("say that the server is not responding", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    const error = await get("/totals").catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect(explain(error)).toMatchObject({ code: "unreachable", title: "The server is not responding" });
    expect(explain(error).next).toContain("holdfast-server");
  });

  it("tell when the session has ended", async () => {
    serve({ "GET /totals": new Refusal(401, { title: "Unauthorized", code: "unauthenticated", detail: "" }) });
    const refused = vi.fn<(status: number) => void>();
    setOnRefused(refused);
    await expect(get("/totals")).rejects.toMatchObject({ status: 401 });
    expect(refused).toHaveBeenCalledExactlyOnceWith(401);
  });

  it("hand on an abort as it is", async () => {
    const controller = new AbortController();
    vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
      controller.abort();
      return Promise.reject(init.signal?.reason);
    });
    await expect(request("/api/v1/totals", { signal: controller.signal })).rejects.toMatchObject({ name: "AbortError" });
  });
});
