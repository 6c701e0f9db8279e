/** What is kept and what goes: deleting, locks and holds of restore points, and retention policies. */

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { post, postTo, put, remove, removeWith } from "./client";
import { invalidated, useGet } from "./queries";
import type { SetPolicy, SimulatePolicy } from "./schema";

/** Of a question whose answer is the one to decide by. */
const ONCE = { refetchInterval: false, refetchOnWindowFocus: false } as const;

/** What deleting these restore points would free: counted over everything in use, so no event asks for it again. */
export const useFreed = (ids: readonly string[]) =>
  useQuery({ queryKey: ["freed", ids], queryFn: () => post("/restore-points/freed", { ids: [...ids] }), gcTime: 0, ...ONCE });

/** A change of restore points: everything about them is fetched again. */
function useChange<Wanted, Answer>(change: (wanted: Wanted) => Promise<Answer>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => invalidated(client, ["backups", "tokens"]) });
}

export const useDeletePoints = () =>
  useChange(({ ids, reason }: { ids: readonly string[]; reason: string }) => post("/restore-points/delete", { ids: [...ids], reason }));

export const useLock = (id: string) => useChange((until: string) => postTo("/restore-points/{id}/lock", { id }, { until }));
export const useHold = (id: string) => useChange((reason: string) => postTo("/restore-points/{id}/hold", { id }, { reason }));
export const useReleaseHold = (id: string) =>
  useChange((reason: string) => removeWith("/restore-points/{id}/hold", { id }, { reason }));

export const usePolicies = (namespace: string) => useGet("policies", "/policies", { namespace });

/** Creates a policy, or replaces the one of an id. */
export function useSetPolicy(id: string | null) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (policy: SetPolicy) => (id === null ? post("/policies", policy) : put("/policies/{id}", { id }, policy)),
    onSuccess: () => invalidated(client, ["policies"]),
  });
}

export function useRemovePolicy() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => remove("/policies/{id}", { id }),
    onSuccess: () => invalidated(client, ["policies"]),
  });
}

/** What a policy would keep and delete now. */
export const useDryRun = (id: string) =>
  useQuery({ queryKey: ["dry-run", id], queryFn: () => postTo("/policies/{id}/run", { id }, { dry_run: true }), gcTime: 0, ...ONCE });

/** Deletes exactly what the dry run with this plan showed, or nothing. */
export const useRunPolicy = (id: string) => useChange((plan: string | null) => postTo("/policies/{id}/run", { id }, { dry_run: false, plan }));

/** What rules would keep of the backups that a schedule makes. */
export const useSimulation = (wanted: SimulatePolicy) =>
  useQuery({
    queryKey: ["simulation", wanted],
    queryFn: () => post("/policies/simulate", wanted),
    staleTime: Infinity,
    refetchInterval: false,
    placeholderData: keepPreviousData,
  });
