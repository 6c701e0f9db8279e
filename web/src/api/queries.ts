/**
 * Every question the pages ask, as a hook. The first word of a key says what it is about; `changed` events
 * of the server invalidate by it (see {@link invalidated}). Stale answers stay on screen while new ones load.
 */

import {
  keepPreviousData,
  QueryClient,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";

import { get, post, remove, type Query } from "./client";
import { ApiError } from "./error";
import type {
  ActivityList,
  AuditEntry,
  Backup,
  Capacity,
  DetailRow,
  DetailWithExplanation,
  Job,
  Keyset,
  Namespace,
  NewToken,
  Page,
  Series,
  ServerInfo,
  Session,
  Storage,
  StorageStatistics,
  TokenRecord,
  Totals,
  TotalsRow,
  Vm,
  VmDetail,
} from "./types";

/** How long an answer counts as fresh when no event says otherwise. */
const FRESH_MS = 20_000;

/** A client as the app uses it. Only passing failures are tried again. */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: FRESH_MS,
        refetchOnWindowFocus: true,
        retry: (count, error) => count < 3 && error instanceof ApiError && error.passing,
        retryDelay: (count) => Math.min(8_000, 500 * 2 ** count),
      },
    },
  });
}

/** First words of the keys that an event's `what` makes stale. */
const STALE_BY: Record<string, readonly string[]> = {
  details: ["details", "detail", "groups", "series", "totals", "vms", "vm", "jobs", "capacity", "storage"],
  backups: ["backups", "vms", "vm", "namespaces", "totals", "capacity", "storage", "jobs"],
  tokens: ["tokens", "audit"],
};

/** Marks what a `changed` event is about as stale; what is on screen is fetched again. */
export function invalidated(client: QueryClient, what: readonly string[]): Promise<void> {
  const words = new Set(what.flatMap((subject) => STALE_BY[subject] ?? []));
  return client.invalidateQueries({ predicate: (query) => words.has(String(query.queryKey[0])) });
}

/** One GET as a query: `key` is the path's subject, `query` its parameters. */
function useGet<T>(subject: string, path: string, query: Query = {}, enabled = true) {
  return useQuery({
    queryKey: [subject, path, query],
    queryFn: ({ signal }) => get<T>(path, query, signal),
    enabled,
    placeholderData: keepPreviousData,
  });
}

/** Who is logged in; `null` when nobody is. */
export const useSession = () =>
  useQuery({
    queryKey: ["session"],
    queryFn: async ({ signal }) => {
      try {
        return await get<Session>("/session", {}, signal);
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) return null;
        throw error;
      }
    },
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    retry: true,
    retryDelay: (count) => Math.min(4_000, 400 * 2 ** count),
  });

export const useServer = () => useGet<ServerInfo>("server", "/server");
export const useNamespaces = () => useGet<Page<Namespace>>("namespaces", "/namespaces");
export const useTotals = (namespace: string) => useGet<Totals>("totals", "/totals", { namespace });
export const useCapacity = (enabled: boolean) => useGet<Capacity>("capacity", "/capacity", {}, enabled);
export const useJobs = (namespace: string) => useGet<Page<Job>>("jobs", "/jobs", { namespace });
export const useVms = (query: Query) => useGet<Page<Vm>>("vms", "/vms", query);
export const useVm = (namespace: string, vm: string) =>
  useGet<VmDetail>("vm", `/vms/${encodeURIComponent(namespace)}/${encodeURIComponent(vm)}`);
export const useSeries = (query: Query) => useGet<Series>("series", "/series", query);
export const useDetails = (query: Query) => useGet<Page<DetailRow>>("details", "/details", query);
export const useGroups = (query: Query) => useGet<Page<TotalsRow>>("groups", "/details/totals", query);
export const useDetail = (id: string) =>
  useQuery({
    queryKey: ["detail", id],
    queryFn: ({ signal }) => get<DetailWithExplanation>(`/details/${encodeURIComponent(id)}`, {}, signal),
    enabled: id !== "",
  });
export const useStorage = () => useGet<Storage>("storage", "/storage");
export const useStatistics = () => useGet<StorageStatistics>("storage", "/storage/statistics");
export const useTokens = () => useGet<Page<TokenRecord>>("tokens", "/tokens");

/** Running backups. The live connection writes them here; the request is only for before the first event. */
export const ACTIVITY_KEY = ["activity"] as const;
export const useActivity = () =>
  useQuery({ queryKey: ACTIVITY_KEY, queryFn: ({ signal }) => get<ActivityList>("/activity", {}, signal) });

/** Restore points, newest first, page by page. */
export const useBackups = (query: Query) =>
  useInfiniteQuery({
    queryKey: ["backups", query],
    queryFn: ({ pageParam, signal }) =>
      get<Keyset<Backup>>("/backups", { ...query, page_size: 1000, page_token: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** The audit log, newest first, page by page. */
export const useAudit = () =>
  useInfiniteQuery({
    queryKey: ["audit"],
    queryFn: ({ pageParam, signal }) =>
      get<Keyset<AuditEntry>>("/audit", { page_size: 50, page_token: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** Makes a token. The answer is the only time its text is known. */
export function useCreateToken() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (token: NewToken) => post<{ token: string; record: TokenRecord }>("/tokens", token),
    onSuccess: () => invalidated(client, ["tokens", "backups"]),
  });
}

export function useRevokeToken() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => remove(`/tokens/${encodeURIComponent(id)}`),
    onSuccess: () => invalidated(client, ["tokens"]),
  });
}
