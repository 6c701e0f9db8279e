/** Answers of a server, as the API describes them. */

import type { Backup, DetailRow, Session } from "../api/schema";

export const session = (changes: Partial<Session> = {}): Session => ({
  name: "first",
  role: "admin",
  namespaces: [],
  every_vm: true,
  actions: ["catalog", "report", "operate", "manage_tokens", "retain"],
  csrf: "csrf-token",
  expires: null,
  version: "0.3.0",
  ...changes,
});

/** Row `index` of a long list, which its name and its new bytes show. */
export function detailRow(index: number, changes: Partial<DetailRow> = {}): DetailRow {
  return {
    id: `01JSESSION${index}-0`,
    namespace: "default",
    job: "nightly",
    run: "01JRUN",
    vm: `vm${index}`,
    disk: "disk0",
    backup: "01JBACKUP",
    status: "done",
    started: "2026-11-20T22:00:00.000Z",
    finished: "2026-11-20T22:01:30.500Z",
    seconds: 90.5,
    virtual_bytes: 17_179_869_184,
    bytes: 8_589_934_592,
    read_bytes: 8_589_934_592,
    unchanged_bytes: 6_442_450_944,
    dup_bytes: 1_073_741_824,
    new_bytes: 1_073_741_824 + index,
    post_lc: 536_870_912,
    meta_bytes: 4096,
    wire_bytes: 600_000_000,
    global_factor: 8,
    local_factor: 2,
    "bytes/post_lc": 16,
    reduction_pct: 93.75,
    chunks: 90_000,
    new_chunks: 45_000,
    mb_per_s: 94.9,
    retried_post_lc: 0,
    error: "",
    trend: [15.5, null, 16],
    flag: null,
    ...changes,
  };
}

/** A restore point, taken so many days before the end of 2026-11-20. */
export const backup = (index: number, changes: Partial<Backup> = {}): Backup => ({
  id: `01JBACKUP${index}`,
  namespace: "default",
  vm: "web",
  job: "nightly",
  run: "01JRUN",
  client_host: "hv1",
  started: `2026-11-${20 - index}T22:00:00.000Z`,
  finished: `2026-11-${20 - index}T22:01:00.000Z`,
  missing_disks: [],
  accepted_change: false,
  disks: [{ name: "root", size_bytes: 17_179_869_184, data_bytes: 8_589_934_592 }],
  new_bytes: 1_073_741_824,
  post_lc: 536_870_912,
  meta_bytes: 4096,
  damaged_bytes: 0,
  last_proven: null,
  end_to_end: false,
  agent_verified: null,
  locked_until: null,
  hold: null,
  exclusive_bytes: null,
  attributed_bytes: null,
  attributed_at: null,
  places: null,
  verify: null,
  restore_commands: [],
  ...changes,
});
