/** What to do first. */

import { Command } from "./Command";
import { Empty } from "./Feedback";

export function FirstBackup() {
  return (
    <Empty title="No backups yet">
      <ol className="steps">
        <li>
          <p>Add the hypervisor, on the Access page or on the server:</p>
          <Command text="holdfast-server token create --join --name hv1 --namespace default" label="Add hypervisor" />
        </li>
        <li>
          <p>
            On the hypervisor, run the line that this prints: <code>holdfast agent join …</code>
          </p>
        </li>
        <li>
          <p>Back up a disk (a raw image file or a block device):</p>
          <Command text="holdfast backup --vm NAME --job nightly /path/to/disk.raw" label="Back up" />
        </li>
      </ol>
      <p className="muted">This page shows the backup while it runs and its compression details once it has finished.</p>
    </Empty>
  );
}
