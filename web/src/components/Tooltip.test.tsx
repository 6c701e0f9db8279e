import { act, fireEvent, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { definition } from "../format/definitions";
import { Glossary, glossaryId, place, TooltipLayer } from "./Tooltip";
import { Value } from "./Value";

const page = (
  <>
    <Value term="post_lc" kind="bytes" value={1536} />
    <button type="button">elsewhere</button>
    <Glossary />
    <TooltipLayer />
  </>
);

const tooltip = () => screen.queryByRole("tooltip");
const shown = () => waitFor(() => expect(tooltip()?.textContent).toContain("1,536 bytes"));

describe("a number's tooltip", () => {
  it("comes on hover with the definition and the exact value, and goes on Escape", async () => {
    const user = userEvent.setup();
    render(page);
    expect(tooltip()).toBeNull();
    await user.hover(screen.getByText("1.50 KiB"));
    await shown();
    expect(tooltip()?.textContent).toContain(definition("post_lc").text);
    await user.keyboard("{Escape}");
    await waitFor(() => expect(tooltip()).toBeNull());
  });

  it("comes by the keyboard's focus", async () => {
    const user = userEvent.setup();
    render(page);
    await user.tab();
    expect(document.activeElement?.textContent).toBe("1.50 KiB");
    await shown();
    await user.tab();
    await waitFor(() => expect(tooltip()).toBeNull());
  });

  it("comes by touch and goes by a touch elsewhere", async () => {
    render(page);
    const touch = (element: Element) => {
      const event = new Event("pointerup", { bubbles: true });
      Object.assign(event, { pointerType: "touch" });
      act(() => void fireEvent(element, event));
    };
    touch(screen.getByText("1.50 KiB"));
    await shown();
    touch(screen.getByText("elsewhere"));
    await waitFor(() => expect(tooltip()).toBeNull());
  });

  it("has its definition for assistive technology without being open", () => {
    render(page);
    const number = screen.getByText("1.50 KiB");
    const id = number.getAttribute("aria-describedby");
    expect(id).toBe(glossaryId("post_lc"));
    expect(document.getElementById(id ?? "")?.textContent).toBe(definition("post_lc").text);
  });
});

describe("its place", () => {
  const box = (left: number, top: number) => ({ left, top, right: left + 50, bottom: top + 20, width: 50, height: 20 }) as DOMRect;
  const tip = { width: 200, height: 80 };
  const view = { width: 360, height: 600 };
  it("is below, within the window, or above when there is no room below", () => {
    expect(place(box(155, 100), tip, view)).toEqual({ top: 128, left: 80 });
    expect(place(box(0, 100), tip, view).left).toBe(8);
    expect(place(box(330, 100), tip, view).left).toBe(152);
    expect(place(box(155, 560), tip, view).top).toBe(472);
  });
});
