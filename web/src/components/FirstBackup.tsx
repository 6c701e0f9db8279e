/** What to do first, with this server's own address and fingerprint in the commands. */

import { useServer } from "../api/queries";
import { Command } from "./Command";
import { Empty } from "./Feedback";

/** The commands that lead to the first backup. */
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
    <Empty title="No backup yet">
      <ol className="steps">
        <li>
          <p>On the server, make a token for the hypervisor (or do it on the Access page):</p>
          <Command text="holdfast-server token create --name hv1 --role backup" label="Make a token" />
        </li>
        <li>
          <p>
            On the hypervisor, put the token into a file called <code>token</code> and log in:
          </p>
          <Command text={login} label="Log in" />
        </li>
        <li>
          <p>Back up a disk: a raw image file or a block device.</p>
          <Command text={backup} label="Back up" />
        </li>
      </ol>
      <p className="muted">This page shows the backup while it runs and its compression details when it is done.</p>
    </Empty>
  );
}
