import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { makeQueryClient, source } from "../../api/queries";
import type { DetailItem } from "../../api/schema";
import { DETAIL_COLUMNS, defaultVisibility } from "../../pages/details/columns";
import { detailRow, finding } from "../../test/fixtures";
import { held, Refusal, serve, type Asked } from "../../test/server";
import { target } from "./useGridFocus";
import { pagesOf } from "./useWindow";
import { WindowTable } from "./WindowTable";

const TOTAL = 100_000;
const VISIBLE = defaultVisibility(false);

function page({ params }: Asked) {
  const offset = Number(params.get("offset"));
  const limit = Number(params.get("limit"));
  const items = Array.from({ length: Math.min(limit, TOTAL - offset) }, (_, index) =>
    detailRow(offset + index, offset + index === 1 ? { finding: finding() } : {}),
  );
  return { items, total: TOTAL, offset };
}

function draw(changes: Partial<Parameters<typeof WindowTable<DetailItem>>[0]> = {}) {
  const handlers = { onSort: vi.fn<(sort: string) => void>(), onOpen: vi.fn<(row: DetailItem) => void>() };
  const table = (sort: string, more: typeof changes = {}) => (
    <QueryClientProvider client={client}>
      <WindowTable<DetailItem>
        label="Runs"
        source={source("details", "/details", { sort })}
        columns={DETAIL_COLUMNS}
        visibility={VISIBLE}
        sort={sort}
        rowId={(row) => row.id}
        rowClass={(row) => (row.finding === null ? "" : "row-flagged")}
        empty={<p>Nothing here</p>}
        {...handlers}
        {...changes}
        {...more}
      />
    </QueryClientProvider>
  );
  const client = makeQueryClient();
  const view = render(table("-started"));
  return { ...handlers, ...view, client, again: (sort: string, more: typeof changes = {}) => view.rerender(table(sort, more)) };
}

/** jsdom lays nothing out; the virtualizer reads these. */
function layOut(height: number) {
  vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(height);
  vi.spyOn(Element.prototype, "clientWidth", "get").mockReturnValue(1200);
  vi.spyOn(Element.prototype, "scrollHeight", "get").mockReturnValue(40 + TOTAL * 36);
}

function scroll(container: HTMLElement, top: number) {
  const scroller = container.querySelector<HTMLElement>(".grid-scroll");
  if (scroller === null) throw new Error("no table");
  Object.defineProperty(scroller, "scrollTop", { value: top, configurable: true });
  fireEvent.scroll(scroller);
}

describe("a table of 100,000 rows", () => {
  beforeEach(() => layOut(600));

  it("draws a bounded number of rows and tells how many there are", async () => {
    serve({ "GET /details": page });
    const { container } = draw();
    await screen.findByText("vm0");
    expect(container.querySelectorAll("tr.grid-row").length).toBeLessThan(60);
    expect(screen.getByRole("grid").getAttribute("aria-rowcount")).toBe(String(TOTAL + 1));
    const heights = [...container.querySelectorAll<HTMLElement>(".grid-spacer td")].map((cell) => parseInt(cell.style.height, 10));
    const drawn = container.querySelectorAll("tr.grid-row").length;
    expect(heights.reduce((sum, height) => sum + height, 0) + drawn * 36).toBe(TOTAL * 36);
  });

  it("asks for the pages that scroll into view and no other", async () => {
    const log = serve({ "GET /details": page });
    const { container } = draw();
    await screen.findByText("vm0");
    const scroller = container.querySelector<HTMLElement>(".grid-scroll");
    if (scroller === null) throw new Error("no scroller");
    scroller.scrollTop = 40 + 50_000 * 36;
    fireEvent.scroll(scroller);
    await screen.findByText("vm50000");
    expect(log.map((asked) => asked.params.get("offset")).filter((offset) => offset !== "0")).toEqual(["49800", "50000"]);
    await screen.findByText("vm49995");
    const rows = [...container.querySelectorAll("tr.grid-row[data-row]")].filter((row) => row.getAttribute("data-row") !== "0");
    expect(rows.length).toBeLessThan(60);
    expect(rows.every((row) => row.textContent?.includes(`vm${row.getAttribute("data-row")}`))).toBe(true);
  });

  it("marks a flagged row with words, not colour alone", async () => {
    serve({ "GET /details": page });
    draw();
    const [mark, cell] = await screen.findAllByText("incompressible");
    expect(mark?.closest("th")?.textContent).toBe("vm1incompressible");
    if (cell === undefined) throw new Error("no badge");
    expect(cell.closest("tr")?.className).toContain("row-flagged");
    expect(cell.closest("[data-exact]")?.getAttribute("data-exact")).toContain("84.0 GiB more than usual, since Tuesday. Much is new");
  });

  it("sorts by a click and by the keyboard, numbers from the largest first", async () => {
    serve({ "GET /details": page });
    const { onSort } = draw();
    await screen.findByText("vm0");
    const user = userEvent.setup();
    const header = (name: string) => within(screen.getByRole("grid")).getByRole("button", { name });
    await user.click(header("Post-comp"));
    expect(onSort).toHaveBeenLastCalledWith("-post_lc");
    await user.click(header("VM"));
    expect(onSort).toHaveBeenLastCalledWith("vm");
    header("Started").focus();
    await user.keyboard("{Enter}");
    expect(onSort).toHaveBeenLastCalledWith("started");
    expect(header("Started").closest("th")?.getAttribute("aria-sort")).toBe("descending");
    expect(header("VM").closest("th")?.getAttribute("aria-sort")).toBe("none");
  });

  it("keeps the old rows, marked, while another order loads", async () => {
    let release = () => {};
    const gate = new Promise<void>((resolve) => (release = resolve));
    serve({ "GET /details": page });
    const { container, again } = draw();
    await screen.findByText("vm0");
    const answer = globalThis.fetch;
    vi.stubGlobal("fetch", async (...args: Parameters<typeof fetch>) => {
      await gate;
      return answer(...args);
    });
    again("-post_lc");
    expect(screen.getByText("vm0")).toBeTruthy();
    expect(container.querySelector(".grid-scroll")?.className).toContain("is-stale");
    release();
    await waitFor(() => expect(container.querySelector(".grid-scroll")?.className).not.toContain("is-stale"));
  });

  it("goes from cell to cell by arrow keys with one stop of the Tab key, and opens by Enter", async () => {
    serve({ "GET /details": page });
    const { container, onOpen } = draw();
    await screen.findByText("vm0");
    const user = userEvent.setup();
    await user.tab();
    expect(document.activeElement?.getAttribute("data-spot")).toBe("0.0");
    await user.keyboard("{ArrowDown}{ArrowDown}{ArrowRight}");
    expect(document.activeElement?.getAttribute("data-spot")).toBe("2.1");
    expect(container.querySelectorAll('table [tabindex="0"]')).toHaveLength(1);
    await user.keyboard("{Enter}");
    expect(onOpen).toHaveBeenCalledWith(expect.objectContaining({ vm: "vm2" }));
    await user.keyboard("{ArrowUp}{ArrowUp}{ArrowUp}");
    expect(document.activeElement?.getAttribute("data-spot")).toBe("-1.1");
  });

  it("keeps a focus that came before the rows did", async () => {
    serve({ "GET /details": page });
    const { container } = draw();
    const cell = container.querySelector<HTMLElement>('[data-spot="3.1"]');
    cell?.focus();
    await screen.findByText("vm3");
    expect(document.activeElement).toBe(cell);
    expect(cell?.textContent).toBe("disk0");
  });

  it("says when a later page does not come, and keeps what it has", async () => {
    let broken = true;
    serve({ "GET /details": (asked: Asked) => (broken && asked.params.get("offset") !== "0" ? new Refusal(400, { title: "Bad", code: "invalid", detail: "no such page" }) : page(asked)) });
    const { container } = draw();
    await screen.findByText("vm0");
    scroll(container, 200 * 36);
    const note = await screen.findByRole("alert");
    expect(note.textContent).toContain("no such page");
    screen.getByRole("grid");
    broken = false;
    fireEvent.click(within(note).getByRole("button", { name: "Try again" }));
    await waitFor(() => expect(screen.queryByRole("alert")).toBeNull());
  });

  it("reaches every row of a list that is higher than a browser can lay out", async () => {
    const many = 932_067;
    const log = serve({ "GET /details": (asked: Asked) => ({ ...page(asked), total: many }) });
    const { container } = draw();
    await screen.findByText("vm0");
    // Firefox lays out less than Chromium: 17,895,697 px.
    const height = () => [...container.querySelectorAll<HTMLElement>(".grid-spacer td")].reduce((sum, cell) => sum + parseInt(cell.style.height, 10), 0);
    expect(height()).toBeLessThan(17_000_000);
    screen.getByText("Rows 1 to 400,000 of 932,067");
    fireEvent.click(screen.getByRole("button", { name: "Next rows" }));
    await waitFor(() => expect(log.at(-1)?.params.get("offset")).toBe("400000"));
    fireEvent.click(screen.getByRole("button", { name: "Next rows" }));
    screen.getByText("Rows 800,001 to 932,067 of 932,067");
    expect(screen.queryByRole("button", { name: "Next rows" })).toBeNull();
    await waitFor(() => expect(log.at(-1)?.params.get("offset")).toBe("800000"));
    fireEvent.click(screen.getByRole("button", { name: "Previous rows" }));
    screen.getByText("Rows 400,001 to 800,000 of 932,067");
  });

  it("goes back to the beginning when the list becomes shorter than what is before the rows shown", async () => {
    let many = 932_067;
    serve({ "GET /details": (asked: Asked) => ({ ...page(asked), total: many }) });
    const { container, client } = draw();
    await screen.findByText("vm0");
    fireEvent.click(screen.getByRole("button", { name: "Next rows" }));
    fireEvent.click(screen.getByRole("button", { name: "Next rows" }));
    screen.getByText("Rows 800,001 to 932,067 of 932,067");
    await waitFor(() => expect(client.isFetching()).toBe(0));
    many = 1000;
    await act(() => client.refetchQueries());
    await screen.findByText("vm0");
    expect(screen.queryByText(/^Rows /)).toBeNull();
    expect(container.querySelectorAll("tr.grid-row").length).toBeGreaterThan(1);
  });

  it("tells the place in the whole list of rows that begin later, and the length of that list", async () => {
    const many = 932_067;
    serve({ "GET /details": (asked: Asked) => ({ ...page(asked), total: many }) });
    const { container } = draw();
    await screen.findByText("vm0");
    const grid = screen.getByRole("grid");
    expect(grid.getAttribute("aria-rowcount")).toBe("932068");
    fireEvent.click(screen.getByRole("button", { name: "Next rows" }));
    expect(grid.getAttribute("aria-rowcount")).toBe("932068");
    expect(container.querySelector("tr.grid-row")?.getAttribute("aria-rowindex")).toBe("400002");
  });

  it("never shows rows of another namespace while the chosen one's are on their way", async () => {
    const late = held<object>();
    serve({ "GET /details": (asked: Asked) => (asked.params.get("namespace") === "b" ? late.promise : page(asked)) });
    const of = (namespace: string) => ({ source: source("details", "/details", { namespace }) });
    const { again } = draw(of("a"));
    await screen.findByText("vm0");
    again("-started", of("b"));
    expect(screen.queryByText("vm0")).toBeNull();
    late.resolve({ items: [detailRow(7)], total: 1, offset: 0 });
    await screen.findByText("vm7");
  });

  it("says so when there is nothing, and when the server refuses", async () => {
    serve({ "GET /details": { items: [], total: 0, offset: 0 } });
    const { unmount } = draw();
    await screen.findByText("Nothing here");
    unmount();
    serve({});
    draw();
    expect((await screen.findByRole("alert")).textContent).toContain("not-found");
  });
});

describe("a table that is left open", () => {
  beforeEach(() => {
    layOut(600);
    vi.useFakeTimers({ now: Date.parse("2026-11-20T00:01:00Z"), shouldAdvanceTime: true });
  });
  afterEach(() => vi.useRealTimers());

  it("says as of when its rows are, also where a page never came", async () => {
    serve({ "GET /details": page });
    const { container } = draw();
    await screen.findByText("vm0");
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    await act(() => vi.advanceTimersByTimeAsync(300_000));
    screen.getByText(/^As of 2026-11-20 00:01/);
    // Rows 150 to 250: one page that answered, and one that did not.
    scroll(container, 190 * 36);
    await act(() => vi.advanceTimersByTimeAsync(1000));
    screen.getByText(/^As of 2026-11-20 00:01/);
    scroll(container, 50_000 * 36);
    await act(() => vi.advanceTimersByTimeAsync(1000));
    expect(screen.queryByText("vm0")).toBeNull();
    screen.getByText(/^As of 2026-11-20 00:01/);
  });
});

describe("the keyboard", () => {
  it("stays within the grid", () => {
    const go = (key: string, row: number, column: number, ctrl = false) => target(key, ctrl, { row, column }, 100, 5, 20);
    expect(go("ArrowUp", -1, 2)).toEqual({ row: -1, column: 2 });
    expect(go("ArrowDown", 99, 2)).toEqual({ row: 99, column: 2 });
    expect(go("PageDown", 90, 0)).toEqual({ row: 99, column: 0 });
    expect(go("PageUp", 5, 0)).toEqual({ row: 0, column: 0 });
    expect(go("Home", 50, 3)).toEqual({ row: 50, column: 0 });
    expect(go("End", 0, 0, true)).toEqual({ row: 99, column: 4 });
    expect(go("x", 0, 0)).toBeNull();
  });
});

it("pages cover the rows in view", () => {
  expect(pagesOf(0, 30)).toEqual([0]);
  expect(pagesOf(190, 210)).toEqual([0, 1]);
  expect(pagesOf(99_990, 99_999)).toEqual([499]);
});
