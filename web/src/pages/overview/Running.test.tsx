import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";

import { makeQueryClient } from "../../api/queries";
import type { Activity, ActivityList } from "../../api/schema";
import { serve } from "../../test/server";
import { Running } from "./Running";

const backup = (vm: string, ahead: number | null): Activity => ({
  session: `session-${vm}`,
  backup: `backup-${vm}`,
  run: "run",
  namespace: "default",
  vm,
  job: "nightly",
  host: "host",
  started: "2026-01-01T00:00:00Z",
  last_seen: "2026-01-01T00:00:00Z",
  bytes_total: 100,
  bytes_done: 40,
  bytes_per_second: 1,
  eta_seconds: 60,
  ahead,
  disks: [],
});

const show = (activity: Omit<ActivityList, "now">) => {
  serve({ "GET /activity": { now: "2026-01-01T00:00:00Z", ...activity } });
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <Running />
    </QueryClientProvider>,
  );
};

it("tells backups that run from those that wait, with their place", async () => {
  const restore = { namespace: "default", vm: "db", disk: "root", backup: "backup", ahead: 0 };
  show({ sessions: [backup("web", null), backup("mail", 3)], waiting_restores: [restore] });
  await screen.findByRole("heading", { name: "1 backup running, 1 backup waiting, 1 restore waiting" });
  expect(screen.getByText("40 %")).toBeTruthy();
  expect(screen.getByText("waiting, 3 ahead")).toBeTruthy();
  expect(screen.getByText("restore of disk root")).toBeTruthy();
  expect(screen.getByText("waiting, next in turn")).toBeTruthy();
});
