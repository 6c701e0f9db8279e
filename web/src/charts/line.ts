/** What a chart over days shows, and how its numbers are formatted. */

import { bytes, byteTick } from "../format/bytes";
import type { Term } from "../format/definitions";
import { factor } from "../format/numbers";

export type Unit = "bytes" | "factor";

export interface Line {
  label: string;
  term?: Term;
  /** Name of a colour token: `--chart-<color>`. */
  color: "blue" | "teal" | "amber" | "violet" | "red" | "grey";
  shape: "line" | "area" | "bars";
  dashed?: boolean;
  /** Drawn as the edge of a band towards the next line, and not named in the legend. */
  band?: boolean;
  values: readonly (number | null)[];
}

export const shown = (unit: Unit, value: number | null | undefined): string =>
  unit === "bytes" ? bytes(value ?? null) : factor(value ?? null);

export const tick = (unit: Unit, value: number): string =>
  unit === "bytes" ? byteTick(value) : `${Number(value.toPrecision(4))}×`;
