/** What was asked of the bucket. */

import type { BucketState, TierRequests } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { minute } from "../../format/time";

interface Row {
  name: string;
  made: TierRequests;
}

const COLUMNS: SimpleColumn<Row>[] = [
  { id: "name", header: "", render: (row) => row.name },
  { id: "put", term: "tier_put", kind: "count", value: (row) => row.made.put },
  { id: "get", term: "tier_get", kind: "count", value: (row) => row.made.get },
  { id: "head", term: "tier_head", kind: "count", value: (row) => row.made.head },
  { id: "list", term: "tier_list", kind: "count", value: (row) => row.made.list },
  { id: "delete", term: "tier_delete", kind: "count", value: (row) => row.made.delete },
  { id: "restore", term: "tier_restore", kind: "count", value: (row) => row.made.restore },
  { id: "failed", term: "tier_failed", kind: "count", value: (row) => row.made.failed },
  { id: "sent", term: "tier_sent", kind: "bytes", value: (row) => row.made.sent_bytes },
  { id: "received", term: "tier_received", kind: "bytes", value: (row) => row.made.received_bytes },
];

export function Requests({ bucket: { requests, month, last_month: last } }: { bucket: BucketState }) {
  const rows: Row[] = [
    { name: `Since the server started, ${minute(requests.since)}`, made: requests },
    { name: `${month.month}, counted since ${minute(month.requests.since)}`, made: month.requests },
  ];
  if (last !== null) rows.push({ name: last.month, made: last.requests });
  return <SimpleTable caption="Requests" columns={COLUMNS} rows={rows} rowKey={(row) => row.name} />;
}
