/** Where the data of a restore point lies, in words. */

import type { PointPlaces } from "../../api/schema";
import { bytes } from "../../format/bytes";
import { count } from "../../format/numbers";
import { minute } from "../../format/time";

/** With bytes only where it lies in several places; most of it first. */
export function tierOf({ here_bytes: here, bucket_bytes: bucket, archive_bytes: archive }: PointPlaces): string {
  const all: [number, string][] = [
    [here, "here"],
    [bucket, "bucket"],
    [archive, "archive"],
  ];
  const parts = all.filter(([size]) => size > 0).toSorted(([a], [b]) => b - a);
  if (parts.length < 2) return parts[0]?.[1] ?? "here";
  return parts.map(([size, place]) => `${place} ${bytes(size)}`).join(", ");
}

/** To the byte, and as of when. */
export const tierExact = ({ as_of, here_bytes: here, bucket_bytes: bucket, archive_bytes: archive }: PointPlaces): string =>
  `Here ${count(here)} bytes, in the bucket alone ${count(bucket)}, in the archive ${count(archive)}; as of ${minute(as_of)}`;
