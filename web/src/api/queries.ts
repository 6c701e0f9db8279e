/**
 * Every request the pages make, as a hook. The first word of a key says what it is about; `changed` events
 * of the server invalidate by it (see {@link invalidated}). Stale answers stay on screen while new ones load.
 */

import {
  focusManager,
  QueryClient,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
  type InvalidateOptions,
  type QueryKey,
} from "@tanstack/react-query";

import { get, post, postTo, put, remove, type Answer, type PathOf, type QueryOf } from "./client";
import { ApiError } from "./error";
import type { ChangedSubject, CreateToken, Quota, Session } from "./schema";

/** How long an answer counts as fresh when no event says otherwise. */
const FRESH_MS = 20_000;

/** How often what is on screen is asked for again: no event tells that backups have stopped, or that a read met damage. */
const AGAIN_MS = 60_000;

/** How often the bucket is looked at again. */
const TIERS_MS = 10_000;

/** A window beside this one can have the focus while both are visible. */
focusManager.setEventListener((changed) => {
  const look = () => changed();
  for (const event of ["visibilitychange", "focus"]) window.addEventListener(event, look);
  return () => ["visibilitychange", "focus"].forEach((event) => window.removeEventListener(event, look));
});

/**
 * A client as the app uses it. Only passing failures of questions are tried again. Without a line, too, everything is sent
 * at once or fails at once: what waited for the line would be sent when no one wants it any more.
 */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      mutations: { networkMode: "always" },
      queries: {
        networkMode: "always",
        staleTime: FRESH_MS,
        refetchInterval: AGAIN_MS,
        refetchOnWindowFocus: true,
        retry: (count, error) => count < 3 && error instanceof ApiError && error.passing,
        retryDelay: (count) => Math.min(8_000, 500 * 2 ** count),
      },
    },
  });
}

/** Of a question that is not repeated by itself: its answer is the one to decide by, or each asking is recorded. */
export const ONCE = { refetchInterval: false, refetchOnWindowFocus: false } as const;

/** First words of the keys that an event's `what` makes stale. */
const STALE_BY: Record<ChangedSubject, readonly string[]> = {
  details: ["details", "detail", "findings", "groups", "series", "totals", "vms", "vm", "jobs", "capacity", "storage", "damage"],
  backups: ["backups", "vms", "vm", "namespaces", "totals", "capacity", "storage", "jobs", "damage", "attribution"],
  tokens: ["tokens", "audit", "namespaces"],
  tasks: ["tasks", "task", "schedules", "policies", "thaw"],
  policies: ["policies", "audit"],
};

/** Marks what a `changed` event is about as stale; what is on screen is fetched again. */
export function invalidated(
  client: QueryClient,
  what: readonly ChangedSubject[],
  options: InvalidateOptions = {},
): Promise<void> {
  // A newer server may name a subject that this page does not know.
  const words = new Set(what.flatMap((subject) => STALE_BY[subject] ?? []));
  return client.invalidateQueries({ predicate: (query) => words.has(String(query.queryKey[0])) }, options);
}

/** The namespace that a query asks about; empty: all. */
export const namespaceOf = (key: QueryKey = []): unknown => (key[2] as { namespace?: unknown } | undefined)?.namespace ?? "";

/** One GET as a query: `subject` is what it is about. */
export function useGet<P extends PathOf<"GET">>(subject: string, path: P, query: QueryOf<P> = {}, enabled = true) {
  const queryKey = [subject, path, query];
  return useQuery({
    queryKey,
    queryFn: ({ signal }) => get(path, { query, signal }),
    enabled,
    // What was shown stays while another order or filter loads, but never as that of another namespace.
    placeholderData: (before, of) => (namespaceOf(of?.queryKey) === namespaceOf(queryKey) ? before : undefined),
  });
}

/** Who is logged in, and in whose place when another tab logged in. */
export type Who = Session & { replaced?: string | undefined };

/** Forgets everything shown to the user who was logged in before. */
export const forget = (client: QueryClient): void => client.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });

/** Who is logged in; `null` when no one is. All tabs share one login, so another one may have changed it. */
export const useSession = () =>
  useQuery({
    queryKey: ["session"],
    queryFn: async ({ signal, client }): Promise<Who | null> => {
      try {
        const now: Who = await get("/session", { signal });
        const known = client.getQueryData<Who | null>(["session"]);
        if (known === undefined || known?.csrf === now.csrf) return { ...now, replaced: known?.replaced };
        forget(client);
        return { ...now, replaced: known?.name };
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) return null;
        throw error;
      }
    },
    staleTime: Infinity,
    refetchInterval: false,
    refetchOnWindowFocus: "always",
    retry: true,
    retryDelay: (count) => Math.min(4_000, 400 * 2 ** count),
  });

export const useServer = () => useGet("server", "/server");
export const useNamespaces = () => useGet("namespaces", "/namespaces");
export const useTotals = (namespace: string) => useGet("totals", "/totals", { namespace });
export const useCapacity = (enabled: boolean) => useGet("capacity", "/capacity", {}, enabled);
export const useJobs = (namespace: string) => useGet("jobs", "/jobs", { namespace });
export const useVms = (query: QueryOf<"/vms">) => useGet("vms", "/vms", query);
export const useVm = (namespace: string, vm: string) =>
  useQuery({
    queryKey: ["vm", namespace, vm],
    queryFn: ({ signal }) => get("/vms/{namespace}/{vm}", { params: { namespace, vm }, signal }),
  });
export const useSeries = (query: QueryOf<"/series">) => useGet("series", "/series", query);
export const useDetails = (query: QueryOf<"/details">) => useGet("details", "/details", query);
export const useFindings = (query: QueryOf<"/findings">) => useGet("findings", "/findings", query);
export const useGroups = (query: QueryOf<"/details/totals">) => useGet("groups", "/details/totals", query);
export const useDetail = (id: string) =>
  useQuery({
    queryKey: ["detail", id],
    queryFn: ({ signal }) => get("/details/{id}", { params: { id }, signal }),
    enabled: id !== "",
  });
export const useStorage = () => useGet("storage", "/storage");
export const useStatistics = () => useGet("storage", "/storage/statistics");
/** Whose the stored bytes are, as the last round of reclaim counted them. */
export const useAttribution = (query: QueryOf<"/attribution">, enabled = true) => useGet("attribution", "/attribution", query, enabled);
/** What a VM took over time, as rounds of reclaim counted it. */
export const useAttributedDays = (query: QueryOf<"/attribution/history">, enabled = true) =>
  useGet("attribution", "/attribution/history", query, enabled);
/** The bucket with copies of the repository; copies go on by themselves, and no event tells of them. */
export const useTiers = () =>
  useQuery({ queryKey: ["tiers"], queryFn: ({ signal }) => get("/tiers", { signal }), refetchInterval: TIERS_MS });
/** Agents that back up by the clock, as they last reported. */
export const useAgents = () => useGet("agents", "/agents");
export const useTokens = () => useGet("tokens", "/tokens");

/** A page of a list with offset paging. */
export interface Page<Row> {
  items: Row[];
  total: number;
  offset: number;
}

/** The paths of lists with offset paging, and what is in their rows. */
type ListPath = { [P in PathOf<"GET">]: Answer<P> extends Page<unknown> ? P : never }[PathOf<"GET">];
type RowOf<P extends ListPath> = Answer<P>["items"][number];

/** A list that a table reads page by page. */
export interface Source<Row> {
  /** Identifies the list. */
  key: readonly unknown[];
  page: (offset: number, limit: number, signal: AbortSignal) => Promise<Page<Row>>;
}

export const source = <P extends ListPath>(subject: string, path: P, query: QueryOf<P>): Source<RowOf<P>> => ({
  key: [subject, path, query],
  // The answer of every list path is a page, which the compiler cannot see while the path is generic.
  page: (offset, limit, signal) => get(path, { query: { ...query, offset, limit }, signal }) as Promise<Page<RowOf<P>>>,
});

/** Running backups. The live connection writes them here; the request is only for before the first event. */
export const ACTIVITY_KEY = ["activity"] as const;
export const useActivity = () =>
  useQuery({ queryKey: ACTIVITY_KEY, queryFn: ({ signal }) => get("/activity", { signal }) });

/** Restore points, newest first, page by page. */
export const useBackups = (query: QueryOf<"/backups">) =>
  useInfiniteQuery({
    queryKey: ["backups", query],
    queryFn: ({ pageParam, signal }) =>
      get("/backups", { query: { ...query, page_size: 1000, page_token: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** What cannot be restored, page by page. */
export const useDamage = (query: QueryOf<"/damage">) =>
  useInfiniteQuery({
    queryKey: ["damage", query],
    queryFn: ({ pageParam, signal }) => get("/damage", { query: { ...query, page_token: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** The audit log, newest first, page by page. Reading it is an entry of it, too. */
export const useAudit = () =>
  useInfiniteQuery({
    queryKey: ["audit"],
    queryFn: ({ pageParam, signal }) => get("/audit", { query: { page_size: 50, page_token: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
    ...ONCE,
  });

/** A change. It is done once the server answers: what it makes stale is fetched behind it, which can take long or fail. */
export function useChange<Wanted, Given>(what: readonly ChangedSubject[], change: (wanted: Wanted) => Promise<Given>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => void invalidated(client, what) });
}

/** Creates a token. Its text is in this answer and nowhere else. */
export const useCreateToken = () => useChange(["tokens", "backups"], (token: CreateToken) => post("/tokens", token));

/** Gives a VM to another owner. */
export const useChangeOwner = (namespace: string, vm: string) =>
  useChange(["backups"], (owner: string) => postTo("/vms/{namespace}/{vm}/owner", { namespace, vm }, { owner }));

export const useRevokeToken = () => useChange(["tokens"], (id: string) => remove("/tokens/{id}", { id }));

export const useSetQuota = () =>
  useChange(["tokens", "backups"], ({ name, quota }: { name: string; quota: Quota }) => put("/namespaces/{name}/quota", { name }, quota));
