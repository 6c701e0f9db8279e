/** Who filled the repository in the last week. */

import { Link } from "wouter";

import { useGroups } from "../../api/queries";
import type { TotalsRow } from "../../api/schema";
import { Sparkline } from "../../charts/Sparkline";
import { Card } from "../../components/Card";
import { Async, Empty } from "../../components/Feedback";
import { link } from "../../components/location";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";

const COLUMNS: SimpleColumn<TotalsRow>[] = [
  {
    id: "vm",
    term: "vm",
    render: (row) => <Link href={link("/details", { namespace: row.namespace, vm: row.vm, since: "7d" })}>{row.vm}</Link>,
  },
  { id: "post_lc", term: "post_lc", kind: "bytes", value: (row) => row.post_lc },
  { id: "new_bytes", term: "new_bytes", kind: "bytes", value: (row) => row.new_bytes },
  { id: "total", term: "bytes/post_lc", kind: "factor", value: (row) => row["bytes/post_lc"] },
  { id: "trend", term: "trend", render: (row) => <Sparkline values={row.trend} /> },
];

export function Worst({ namespace }: { namespace: string }) {
  const query = useGroups({ namespace, by: "vm", finished_since: "7d", sort: "-post_lc", limit: 6 });
  return (
    <Card
      title="What fills the repository"
      hint="VMs by bytes stored in the last 7 days."
      actions={<Link href={link("/details", { namespace, by: "vm", since: "7d" })}>All</Link>}
    >
      <Async query={query} height={200}>
        {(list) =>
          list.items.length === 0 ? (
            <Empty title="Nothing was stored in the last 7 days" />
          ) : (
            <SimpleTable caption="VMs by bytes stored" columns={COLUMNS} rows={list.items} rowKey={(row) => `${row.namespace}/${row.vm}`} />
          )
        }
      </Async>
    </Card>
  );
}
