/**
 * One tooltip for the whole page. Anything with `data-term` (a word of the glossary) or `data-exact` (the
 * value to the last digit) shows it on hover, on keyboard focus and on touch; Escape hides it; it stays while
 * the pointer is on it. Elements that can take focus also point to the hidden {@link Glossary}, so that a
 * screen reader reads the definition without any of this.
 */

import { useEffect, useRef, useState } from "react";

import { DEFINITIONS, definition, TERMS, type Term } from "../format/definitions";

const SELECTOR = "[data-term],[data-exact]";
const SHOW_DELAY_MS = 150;
const HIDE_DELAY_MS = 120;
const GAP_PX = 8;
const MARGIN_PX = 8;

interface Shown {
  anchor: Element;
  term: Term | null;
  exact: string;
}

const isTerm = (word: string): word is Term => Object.hasOwn(DEFINITIONS, word);

function read(anchor: Element): Shown {
  const word = anchor.getAttribute("data-term") ?? "";
  return { anchor, term: isTerm(word) ? word : null, exact: anchor.getAttribute("data-exact") ?? "" };
}

/** Identifier of a term's entry in the glossary, for `aria-describedby`. */
export const glossaryId = (term: Term): string => `glossary-${term.replace("/", "-per-")}`;

/** Definitions for assistive technology; never shown. */
export function Glossary() {
  return (
    <div hidden>
      {TERMS.map((term) => (
        <p key={term} id={glossaryId(term)}>
          {definition(term).text}
        </p>
      ))}
    </div>
  );
}

/** Where the tooltip goes: below its anchor, above when there is more room, always within the window. */
export function place(anchor: DOMRect, tip: { width: number; height: number }, view: { width: number; height: number }) {
  const below = anchor.bottom + GAP_PX;
  const fitsBelow = below + tip.height + MARGIN_PX <= view.height;
  const top = fitsBelow ? below : Math.max(MARGIN_PX, anchor.top - GAP_PX - tip.height);
  const centred = anchor.left + anchor.width / 2 - tip.width / 2;
  const left = Math.max(MARGIN_PX, Math.min(centred, view.width - tip.width - MARGIN_PX));
  return { top, left };
}

export function TooltipLayer() {
  const [shown, setShown] = useState<Shown | null>(null);
  const tip = useRef<HTMLDivElement>(null);

  useEffect(() => listen(tip, setShown), []);

  useEffect(() => {
    const element = tip.current;
    if (element === null || shown === null) return;
    element.showPopover?.();
    const box = element.getBoundingClientRect();
    const view = { width: document.documentElement.clientWidth, height: window.innerHeight };
    const { top, left } = place(shown.anchor.getBoundingClientRect(), box, view);
    element.style.top = `${top}px`;
    element.style.left = `${left}px`;
    return () => element.hidePopover?.();
  }, [shown]);

  const entry = shown?.term ? definition(shown.term) : null;
  return (
    <div ref={tip} className="tooltip" role="tooltip" popover="manual" hidden={shown === null}>
      {entry !== null && <strong>{entry.label}</strong>}
      {shown?.exact ? <span className="tooltip-exact">{shown.exact}</span> : null}
      {entry !== null && <span>{entry.text}</span>}
    </div>
  );
}

/** Wires the page's events to what is shown; returns how to undo it. */
function listen(tip: { current: HTMLElement | null }, show: (shown: Shown | null) => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let current: Element | null = null;

  const set = (anchor: Element | null, delayMs: number) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      current = anchor;
      show(anchor === null ? null : read(anchor));
    }, delayMs);
  };
  const anchorOf = (event: Event) => (event.target instanceof Element ? event.target.closest(SELECTOR) : null);
  const onTip = (event: Event) => event.target instanceof Node && tip.current?.contains(event.target) === true;

  const handlers: Record<string, (event: Event) => void> = {
    pointerover: (event) => {
      if ((event as PointerEvent).pointerType === "touch") return;
      if (onTip(event)) return clearTimeout(timer);
      const anchor = anchorOf(event);
      if (anchor !== null) set(anchor, SHOW_DELAY_MS);
      else if (current !== null || timer !== undefined) set(null, HIDE_DELAY_MS);
    },
    focusin: (event) => {
      const anchor = anchorOf(event);
      const byKeyboard = event.target instanceof Element && event.target.matches(":focus-visible");
      set(byKeyboard ? anchor : null, 0);
    },
    focusout: () => set(null, HIDE_DELAY_MS),
    pointerup: (event) => {
      if ((event as PointerEvent).pointerType !== "touch" || onTip(event)) return;
      set(anchorOf(event), 0);
    },
    keydown: (event) => {
      if ((event as KeyboardEvent).key === "Escape" && current !== null) set(null, 0);
    },
    scroll: () => {
      if (current === null) return;
      // Focus scrolls its element into view; then the tooltip follows. Otherwise it would point at nothing.
      if (current === document.activeElement) show(read(current));
      else set(null, 0);
    },
  };
  for (const [kind, handler] of Object.entries(handlers)) document.addEventListener(kind, handler, true);
  return () => {
    clearTimeout(timer);
    for (const [kind, handler] of Object.entries(handlers)) document.removeEventListener(kind, handler, true);
  };
}
