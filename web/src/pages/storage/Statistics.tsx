/** Sizes of chunks and compression of regions, from the directories of a sample of containers. */

import type { StorageStatistics } from "../../api/schema";
import { Histogram } from "../../charts/Histogram";
import { Card } from "../../components/Card";
import { Empty } from "../../components/Feedback";
import { Fact, Facts } from "../../components/Stat";
import { count, plural } from "../../format/numbers";
import { factorBins, sizeBins } from "./bins";

export function Statistics({ numbers }: { numbers: StorageStatistics }) {
  if (numbers.regions === 0) {
    return (
      <Card title="Chunks and regions" className="wide">
        <Empty title="No data containers yet">The histograms appear after the first backup.</Empty>
      </Card>
    );
  }
  const hint = `From the directories of ${count(numbers.sampled_containers)} of ${plural(numbers.containers, "data container")}.`;
  return (
    <>
      <Card title="Compressibility" hint={hint}>
        <Histogram term="region_factor" axis="Regions by compression factor" bins={factorBins(numbers)} color="teal" />
        <Facts>
          <Fact term="regions" kind="count" value={numbers.regions} />
          <Fact term="raw_regions" kind="count" value={numbers.raw_regions} />
        </Facts>
      </Card>
      <Card title="Chunk sizes" hint={hint}>
        <Histogram term="chunk_bytes" axis="Chunks by size in bytes" bins={sizeBins(numbers)} color="blue" />
        <Facts>
          <Fact term="container_chunks" kind="count" value={numbers.chunks} />
          <Fact term="sampled_containers" kind="count" value={numbers.sampled_containers} />
        </Facts>
      </Card>
    </>
  );
}
