/** Stored bytes per day, their forecast, and when the disk will be full. */

import { useMemo } from "react";

import type { Capacity } from "../../api/schema";
import { FileSystemMeter } from "../../charts/Meter";
import { TimeChart } from "../../charts/TimeChart";
import { Fact, Facts } from "../../components/Stat";
import { TermLabel } from "../../components/Value";
import { growthLines } from "./forecast";

export function Growth({ capacity }: { capacity: Capacity }) {
  const { days, lines } = useMemo(() => growthLines(capacity), [capacity]);
  const { forecast, growth } = capacity;
  return (
    <>
      {days.length > 1 && <TimeChart title="Stored bytes per day, with forecast" days={days} lines={lines} unit="bytes" height={210} />}
      <p className="forecast">
        <TermLabel term="forecast">Forecast</TermLabel>: {forecast.text}
      </p>
      <FileSystemMeter
        parts={[{ term: "repository_bytes", value: capacity.repository_bytes, color: "teal" }]}
        space={capacity}
      />
      {growth !== null && (
        <Facts>
          <Fact term="growth" kind="bytes" value={growth.bytes_per_day} label="Growth per day" />
          <Fact term="growth" kind="bytes" value={growth.low} label="at least" />
          <Fact term="growth" kind="bytes" value={growth.high} label="at most" />
        </Facts>
      )}
    </>
  );
}
