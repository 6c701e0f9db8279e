/** The address, which is the only place that keeps filters, so that every view can be linked to. */

import { useCallback } from "react";
// As the address has them: wouter's own hooks decode once, and reading names from those would decode twice.
import { navigate, useSearch } from "wouter/use-browser-location";

/** The query of the address, and a way to change some of it. `null` and empty remove a parameter. */
export function useParams(): [URLSearchParams, (changes: Record<string, string | null>, replace?: boolean) => void] {
  const search = useSearch();
  const change = useCallback(
    (changes: Record<string, string | null>, replace = true) => {
      // Read at the time of the change, so that two changes in one event both count.
      const params = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === "") params.delete(name);
        else params.set(name, value);
      }
      const text = params.toString();
      navigate(`${window.location.pathname}${text === "" ? "" : `?${text}`}`, { replace });
    },
    [],
  );
  return [new URLSearchParams(search), change];
}

/** The namespace chosen in the header; empty for all the token covers. */
export function useNamespace(): string {
  return new URLSearchParams(useSearch()).get("namespace") ?? "";
}

/** A path with a query; empty values are left out. */
export function link(path: string, query: Record<string, string>): string {
  const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  const text = params.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** The page of one VM. */
export const vmPath = (namespace: string, vm: string): string =>
  `/vms/${encodeURIComponent(namespace)}/${encodeURIComponent(vm)}`;

/** The VM whose page the address names. */
export function vmOf(path: string): { namespace: string; vm: string } | null {
  const [, namespace, vm] = /^\/vms\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
  if (namespace === undefined || vm === undefined) return null;
  try {
    return { namespace: decodeURIComponent(namespace), vm: decodeURIComponent(vm) };
  } catch {
    return null;
  }
}
