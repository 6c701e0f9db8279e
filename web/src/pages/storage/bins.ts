/** Histograms of the storage statistics as labelled bars. */

import type { StorageStatistics } from "../../api/schema";
import type { Bin } from "../../charts/Histogram";
import { bytes } from "../../format/bytes";
import { count, plural } from "../../format/numbers";

/** The range that begins at `edges[index]`; the last one is open. */
function range(edges: readonly number[], index: number, say: (edge: number) => string): string {
  const low = edges[index];
  const high = edges[index + 1];
  if (low === undefined) return "";
  return high === undefined ? `${say(low)} and more` : `${say(low)} to ${say(high)}`;
}

/** Regions by how far they compressed. */
export function factorBins({ region_factor: histogram }: StorageStatistics): Bin[] {
  const say = (edge: number) => `${edge}×`;
  return histogram.regions.map((regions, index) => ({
    label: `${histogram.edges[index] ?? ""}×`,
    value: regions,
    words: `${range(histogram.edges, index, say)}: ${plural(regions, "region")}, ${bytes(histogram.plain_bytes[index])} stored as ${bytes(histogram.stored_bytes[index])}`,
  }));
}

/** Chunks by their size. */
export function sizeBins({ chunk_bytes: histogram }: StorageStatistics): Bin[] {
  return histogram.chunks.map((chunks, index) => ({
    label: short(histogram.edges[index] ?? 0),
    value: chunks,
    words: `${range(histogram.edges, index, bytes)}: ${count(chunks)} chunks, ${bytes(histogram.bytes[index])} in all`,
  }));
}

/** The first range begins at the size of the smallest possible chunk, shown as 0. */
const short = (edge: number): string => (edge >= 1024 ? `${Math.round(edge / 1024)}k` : "0");
