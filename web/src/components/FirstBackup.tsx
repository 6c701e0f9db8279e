/** What to do first, with this server's own address and fingerprint in the commands. */

import { useServer } from "../api/queries";
import { Command } from "./Command";
import { Empty } from "./Feedback";

/** The commands for a first backup. */
export function firstCommands(host: string, grpcAddress: string, fingerprint: string): string[] {
  const port = grpcAddress.slice(grpcAddress.lastIndexOf(":") + 1);
  const name = host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
  return [
    `holdfast login --server ${name}:${port} --fingerprint ${fingerprint} --token-file token`,
    "holdfast backup --vm NAME --job nightly /path/to/disk.raw",
  ];
}

export function FirstBackup() {
  const server = useServer().data;
  const [login = "", backup = ""] = firstCommands(window.location.hostname, server?.grpc_address ?? ":7440", server?.fingerprint ?? "SHA256");
  return (
    <Empty title="No backups yet">
      <ol className="steps">
        <li>
          <p>Create a token for the hypervisor, on the server or on the Access page:</p>
          <Command text="holdfast-server token create --name hv1 --role backup" label="Create a token" />
        </li>
        <li>
          <p>
            On the hypervisor, save the token in a file called <code>token</code> and log in:
          </p>
          <Command text={login} label="Log in" />
        </li>
        <li>
          <p>Back up a disk (a raw image file or a block device):</p>
          <Command text={backup} label="Back up" />
        </li>
      </ol>
      <p className="muted">This page shows the backup while it runs and its compression details once it has finished.</p>
    </Empty>
  );
}
