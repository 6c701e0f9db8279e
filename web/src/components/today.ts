/** The time, also on a page that stays open for days. */

import { useSyncExternalStore } from "react";

import { day } from "../format/time";

/** How often the clock is looked at. */
export const LOOK_MS = 30_000;

function subscribe(look: () => void): () => void {
  const timer = setInterval(look, LOOK_MS);
  return () => clearInterval(timer);
}

/** `2026-11-21`. */
export const useToday = (): string => useSyncExternalStore(subscribe, () => day(new Date()));

/** Milliseconds since the epoch, in steps: what uses it is drawn again at each. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => Date.now() - (Date.now() % LOOK_MS));
