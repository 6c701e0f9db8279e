import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { makeQueryClient } from "../../api/queries";
import { serve } from "../../test/server";
import { Places } from "./Places";

const MIB = 1_048_576;
const amount = (mib: number) => ({ blobs: 1, bytes: mib * MIB });
const stored = (name: string, archive: boolean, mib: number) => ({ class: name, blobs: 1, bytes: mib * MIB, archive, thawed: 0, cost: null, keeping_month: null });

describe("where it lies", () => {
  it("is added up over all kinds, and what of it is archived", async () => {
    const places = [
      { kind: "containers", local: amount(1), both: amount(20), bucket: amount(300) },
      { kind: "points", local: amount(0), both: amount(2), bucket: amount(0) },
    ];
    const classes = [stored("STANDARD", false, 82), stored("GLACIER", true, 100), stored("DEEP_ARCHIVE", true, 140)];
    serve({ "GET /tiers": { bucket: { places, classes } } });
    render(
      <QueryClientProvider client={makeQueryClient()}>
        <Places />
      </QueryClientProvider>,
    );
    await screen.findByText("300 MiB");
    const facts = [...document.querySelectorAll("dd")].map((fact) => fact.textContent);
    expect(facts).toEqual(["1.00 MiB", "22.0 MiB", "300 MiB", "240 MiB"]);
  });
});
