/** Light, dark, or the preference of the system. `public/theme.js` applies the choice before the first paint. */

import { useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";

const KEY = "holdfast.theme";
const changed = new EventTarget();

export function theme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === "light" || chosen === "dark" ? chosen : "auto";
}

export function setTheme(next: Theme): void {
  const root = document.documentElement;
  if (next === "auto") delete root.dataset["theme"];
  else root.dataset["theme"] = next;
  try {
    if (next === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Storage is forbidden; the choice holds until the page is left.
  }
  changed.dispatchEvent(new Event("theme"));
}

function subscribe(listener: () => void): () => void {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  changed.addEventListener("theme", listener);
  system.addEventListener("change", listener);
  return () => {
    changed.removeEventListener("theme", listener);
    system.removeEventListener("change", listener);
  };
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, theme);

/** Whether dark colours are on screen; charts are drawn again when it changes. */
export const useDark = (): boolean =>
  useSyncExternalStore(subscribe, () => {
    const chosen = theme();
    return chosen === "auto" ? window.matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
  });
