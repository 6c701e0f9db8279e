/** What is kept and what goes: deleting, locks and holds of restore points, and retention policies. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { post, postTo, put, remove } from "./client";
import { ONCE, useChange, useGet } from "./queries";
import type { SetPolicy, SimulatePolicy } from "./schema";

/** What deleting these restore points would free: counted over everything in use, so no event asks for it again. */
export const useFreed = (ids: readonly string[]) =>
  useQuery({ queryKey: ["freed", ids], queryFn: () => post("/restore-points/freed", { ids: [...ids] }), gcTime: 0, ...ONCE });

/** What a change of restore points makes stale. */
const POINTS = ["backups", "tokens"] as const;

export const useDeletePoints = () =>
  useChange(POINTS, ({ ids, reason }: { ids: readonly string[]; reason: string }) => post("/restore-points/delete", { ids: [...ids], reason }));

export const useLock = (id: string) => useChange(POINTS, (until: string) => post("/restore-points/lock", { ids: [id], until }));
export const useHold = (id: string) => useChange(POINTS, (reason: string) => post("/restore-points/hold", { ids: [id], reason }));
export const useReleaseHold = (id: string) =>
  useChange(POINTS, (reason: string) => post("/restore-points/release", { ids: [id], reason }));

export const usePolicies = (namespace: string) => useGet("policies", "/policies", { namespace });

/** Creates a policy, or replaces the one of an id. */
export const useSetPolicy = (id: string | null) =>
  useChange(["policies"], (policy: SetPolicy) => (id === null ? post("/policies", policy) : put("/policies/{id}", { id }, policy)));

export const useRemovePolicy = () => useChange(["policies"], (id: string) => remove("/policies/{id}", { id }));

/** What a policy would keep and delete now. */
export const useDryRun = (id: string) =>
  useQuery({ queryKey: ["dry-run", id], queryFn: () => postTo("/policies/{id}/run", { id }, { dry_run: true }), gcTime: 0, ...ONCE });

/** Deletes exactly what the dry run with this plan showed, or nothing. */
export const useRunPolicy = (id: string) =>
  useChange(POINTS, (plan: string | null) => postTo("/policies/{id}/run", { id }, { dry_run: false, plan }));

/** What rules would keep of the backups that a schedule makes. */
export const useSimulation = (wanted: SimulatePolicy) =>
  useQuery({
    queryKey: ["simulation", wanted],
    queryFn: () => post("/policies/simulate", wanted),
    staleTime: Infinity,
    refetchInterval: false,
    placeholderData: keepPreviousData,
  });
