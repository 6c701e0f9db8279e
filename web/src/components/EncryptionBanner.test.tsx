import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { makeQueryClient } from "../api/queries";
import { SessionGate } from "../api/session";
import { session } from "../test/fixtures";
import { serve } from "../test/server";
import { EncryptionBanner } from "./EncryptionBanner";

const open = (encryption: object | null, actions?: ("catalog" | "report")[]) => {
  const log = serve({ "GET /session": session(actions === undefined ? {} : { actions }), "GET /server": { grpc_address: "0.0.0.0:7440", fingerprint: "ab:cd", encryption } });
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <SessionGate login={null} Waiting={() => null}>
        <EncryptionBanner />
        <p>page</p>
      </SessionGate>
    </QueryClientProvider>,
  );
  return log;
};

describe("the reminder of a recovery kit", () => {
  it("names the command", async () => {
    open({ reminder: "no recovery kit was exported" });
    const banner = await screen.findByRole("region", { name: "Recovery kit" });
    expect(banner.textContent).toContain("holdfast-server key export-kit");
  });

  it("is not there once there is one, nor without encryption", async () => {
    for (const encryption of [{ reminder: null }, null]) {
      const log = open(encryption);
      await waitFor(() => expect(log.some((each) => each.path === "/server")).toBe(true));
      expect(screen.queryByRole("region", { name: "Recovery kit" })).toBeNull();
    }
  });

  it("is for administrators", async () => {
    open({ reminder: "no recovery kit was exported" }, ["catalog", "report"]);
    await screen.findByText("page");
    expect(screen.queryByRole("region", { name: "Recovery kit" })).toBeNull();
  });
});
