/** The choice of columns, kept in this browser. */

import { useMemo, useState } from "react";

import { defaultVisibility } from "./columns";

const KEY = "holdfast.details.columns";

/** The columns whose visibility differs from the default; nothing when storage is forbidden or unreadable. */
function load(): Record<string, boolean> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    if (typeof kept !== "object" || kept === null) return {};
    return Object.fromEntries(Object.entries(kept).filter(([, value]) => typeof value === "boolean"));
  } catch {
    return {};
  }
}

function save(changes: Record<string, boolean>): void {
  try {
    if (Object.keys(changes).length === 0) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, JSON.stringify(changes));
  } catch {
    // The choice holds until the page is left.
  }
}

export interface ColumnChoice {
  visibility: Record<string, boolean>;
  set: (changes: Record<string, boolean>) => void;
  reset: () => void;
}

export function useColumnChoice(severalNamespaces: boolean): ColumnChoice {
  const [changes, setChanges] = useState(load);
  const visibility = useMemo(
    () => ({ ...defaultVisibility(severalNamespaces), ...changes, vm: true }),
    [severalNamespaces, changes],
  );
  const keep = (next: Record<string, boolean>) => {
    setChanges(next);
    save(next);
  };
  return { visibility, set: (more) => keep({ ...changes, ...more }), reset: () => keep({}) };
}
