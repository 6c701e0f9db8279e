/** What the bucket costs. */

import type { BucketState, TierCost } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { minute } from "../../format/time";

interface Row {
  name: string;
  cost: TierCost;
}

const COLUMNS: SimpleColumn<Row>[] = [
  { id: "name", header: "", render: (row) => row.name },
  { id: "storage", term: "tier_cost_storage", kind: "dollars", value: (row) => row.cost.storage },
  { id: "requests", term: "tier_cost_requests", kind: "dollars", value: (row) => row.cost.requests },
  { id: "reading", term: "tier_cost_reading", kind: "dollars", value: (row) => row.cost.reading },
  { id: "thawing", term: "tier_cost_thawing", kind: "dollars", value: (row) => row.cost.thawing },
  { id: "sum", term: "tier_cost", kind: "dollars", value: (row) => row.cost.sum },
];

/** Storage classes without prices. */
const unknown = ({ class: put, classes }: BucketState): string[] => {
  const without = classes.filter((of) => of.keeping_month === null).map((of) => of.class);
  return without.length > 0 ? without : [put];
};

export function Costs({ bucket }: { bucket: BucketState }) {
  const { month, last_month: last, prices } = bucket;
  if (month.cost === null) {
    return <p>The prices of a storage class are not known here: {unknown(bucket).join(", ")}.</p>;
  }
  const rows: Row[] = [{ name: `${month.month} so far`, cost: month.cost }];
  if (month.forecast !== null) rows.push({ name: `${month.month}, by its end`, cost: month.forecast });
  if (prices.keeping_month !== null) {
    const { keeping_month: sum } = prices;
    rows.push({ name: "A month of what lies there now", cost: { storage: sum, requests: 0, reading: 0, thawing: 0, sum } });
  }
  if (last !== null && last.cost !== null) rows.push({ name: last.month, cost: last.cost });
  return (
    <>
      <SimpleTable caption="Costs" columns={COLUMNS} rows={rows} rowKey={(row) => row.name} />
      <p className="muted">
        Counted since {minute(month.requests.since)}.
        {month.forecast === null && " What the month comes to is told once a day was counted."}
      </p>
    </>
  );
}
