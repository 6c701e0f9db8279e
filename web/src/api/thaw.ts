/** What of a restore point lies in the archive of the bucket, and bringing it back. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { get, postTo } from "./client";
import { useChange } from "./queries";
import type { StartThaw } from "./schema";

/** How often it is looked at again while it is thawed: a look is a walk over all that the restore point needs. */
const UNDER_WAY_MS = 30_000;

/** What thawing a restore point takes; `days`: for which it can be read, 0 as the settings say. */
export const useThaw = (id: string, days: number, enabled = true) =>
  useQuery({
    queryKey: ["thaw", id, days],
    queryFn: ({ signal }) => get("/backups/{id}/thaw", { params: { id }, query: days === 0 ? {} : { days }, signal }),
    enabled,
    placeholderData: keepPreviousData,
    refetchInterval: (query) => (query.state.data?.task === null ? false : UNDER_WAY_MS),
  });

export const useStartThaw = (id: string) =>
  useChange(["tasks"], (wanted: StartThaw) => postTo("/backups/{id}/thaw", { id }, wanted));
