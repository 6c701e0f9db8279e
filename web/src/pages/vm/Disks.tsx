/** The disks of a VM's latest restore point. */

import type { VmDisk } from "../../api/schema";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";

const COLUMNS: SimpleColumn<VmDisk>[] = [
  { id: "disk", term: "disk", render: (disk) => disk.disk },
  { id: "size", term: "virtual_bytes", kind: "bytes", value: (disk) => disk.size_bytes },
  { id: "data", term: "data_bytes", kind: "bytes", value: (disk) => disk.data_bytes },
  { id: "stored", term: "vm_stored_bytes", kind: "bytes", value: (disk) => disk.stored_bytes },
];

export function Disks({ disks }: { disks: VmDisk[] }) {
  return <SimpleTable caption="Disks" columns={COLUMNS} rows={disks} rowKey={(disk) => disk.disk} />;
}
