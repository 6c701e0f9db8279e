import { describe, expect, it } from "vitest";

import { downloadGroups, downloadReport, downloadShown, shownColumns } from "./download";
import contract from "../../../openapi.json";
import { DETAIL_COLUMNS, defaultVisibility, REPORT_COLUMNS } from "./columns";
import { filterOf, orderOf, parseView, toParams, UNFILTERED, type View } from "./view";

const at = (query: string): View => parseView(new URLSearchParams(query));

/** The view written into an address and read again. */
function again(view: View): View {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(toParams(view))) if (value !== null) params.set(name, value);
  return parseView(params);
}

describe("a view and its address", () => {
  it("are the same thing", () => {
    const view = at("q=a%26b&job=nightly&vm=web&disk=root&run=01J&status=failed,expired&since=7d&sort=-bytes%2Fpost_lc&by=vm&row=01J-3&namespace=berlin");
    expect(view).toMatchObject({ q: "a&b", status: ["failed", "expired"], sort: "-bytes/post_lc", by: "vm", row: "01J-3" });
    expect(again(view)).toEqual(view);
  });

  it("an address without anything is newest first, unfiltered, rows", () => {
    expect(at("")).toMatchObject({ sort: "-started", by: "", status: [], q: "" });
    expect(Object.values(toParams(at(""))).every((value) => value === null)).toBe(true);
  });

  it("what an address invents is ignored", () => {
    expect(at("status=done,imagined&by=moon")).toMatchObject({ status: ["done"], by: "" });
  });

  it("resetting the filter keeps order and namespace", () => {
    const params = toParams(UNFILTERED);
    expect(params).not.toHaveProperty("sort");
    expect(params).not.toHaveProperty("namespace");
    expect(params["vm"]).toBeNull();
  });
});

describe("the filter for the server", () => {
  it("passes spans and makes local days whole", () => {
    expect(filterOf(at("since=7d"))).toMatchObject({ finished_since: "7d", finished_until: "" });
    const filter = filterOf(at("since=2026-11-01&until=2026-11-30"));
    expect(filter["finished_since"]).toBe(new Date(2026, 10, 1).toISOString());
    expect(filter["finished_until"]).toBe(new Date(2026, 11, 1).toISOString());
  });

  it("leaves the server's own order unnamed", () => {
    expect([orderOf("started"), orderOf("-started")]).toEqual(["", "-started"]);
  });
});

describe("downloads", () => {
  it("of groups hold the groups, in their order", () => {
    const link = new URL(downloadGroups(at("vm=web&by=disk&gsort=-new_bytes"), "tsv"), "https://x");
    expect(link.pathname).toBe("/api/v1/details/totals");
    expect(Object.fromEntries(link.searchParams)).toEqual({ vm: "web", by: "disk", sort: "-new_bytes", format: "tsv" });
  });

  const all = Object.fromEntries(DETAIL_COLUMNS.map(({ id }) => [id, true]));

  it("hold the shown columns in the order they stand in", () => {
    const visibility = Object.fromEntries(DETAIL_COLUMNS.map(({ id }) => [id, ["vm", "job", "post_lc", "trend", "finding"].includes(id)]));
    expect(shownColumns(visibility)).toEqual(["vm", "job", "post_lc"]);
    const link = new URL(downloadShown(at("vm=web&sort=-post_lc"), visibility, "csv"), "https://x");
    expect(Object.fromEntries(link.searchParams)).toEqual({ vm: "web", sort: "-post_lc", columns: "vm,job,post_lc", format: "csv" });
  });

  it("of everything, oldest first, are what the command line prints", () => {
    expect(shownColumns(all)).toEqual([]);
    expect(downloadShown(at("sort=started&job=nightly"), all, "tsv")).toBe("/api/v1/details?job=nightly&format=tsv");
    expect(downloadReport(at("sort=-post_lc&job=nightly"), "tsv")).toBe("/api/v1/details?job=nightly&format=tsv");
  });

  it("know every column of the contract", () => {
    const { DetailRow, DetailFigures } = contract.components.schemas;
    const { retried_new_bytes: _, ...columns } = { ...DetailRow.properties, ...DetailFigures.properties };
    expect(REPORT_COLUMNS.toSorted()).toEqual(Object.keys(columns).toSorted());
  });

  it("show the namespace only where there are several", () => {
    expect([defaultVisibility(true)["namespace"], defaultVisibility(false)["namespace"]]).toEqual([true, false]);
  });
});
