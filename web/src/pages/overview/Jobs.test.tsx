import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import type { Job } from "../../api/schema";
import { Jobs } from "./Jobs";

function job(failing_vms: number, failed: number): Job {
  const time = "2026-11-20T22:00:00.000Z";
  return {
    namespace: "default",
    job: "nightly",
    runs: 2,
    vms: 2,
    last_run: { id: "01JRUN", started: time, finished: time, disks: 2, failed },
    failing_vms,
    bytes: 1,
    new_bytes: 1,
    stored_bytes: 1,
    global_factor: 1,
    local_factor: 1,
    total_factor: 1,
  };
}

describe("a job", () => {
  it.each([
    ["done", 0, 0],
    // What failed was backed up as a whole since.
    ["done", 0, 1],
    ["1 VM failed", 1, 0],
    ["2 VMs failed", 2, 1],
  ])("is %s", (text, failing, failed) => {
    render(<Jobs jobs={[job(failing, failed)]} />);
    expect(screen.getByText(text)).toBeDefined();
  });
});
