/** The only time a token's text or a join code is shown. A click beside the dialog does not close it. */

import { useServer } from "../../api/queries";
import type { CreatedToken } from "../../api/schema";
import { Command, CopyButton } from "../../components/Command";
import { Dialog } from "../../components/Dialog";
import { Icon } from "../../components/icons";

export function NewTokenDialog({ made, onClose }: { made: CreatedToken; onClose: () => void }) {
  if (made.join_code !== null) return <Joining name={made.record.name} code={made.join_code} onClose={onClose} />;
  return <Token name={made.record.name} token={made.token ?? ""} onClose={onClose} />;
}

/** The command that logs a machine in at this server. */
function loginCommand(host: string, grpcAddress: string, fingerprint: string): string {
  const port = grpcAddress.slice(grpcAddress.lastIndexOf(":") + 1);
  const name = host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
  return `holdfast login --server ${name}:${port} --fingerprint ${fingerprint} --token-file token`;
}

/** The line that makes a machine an agent. */
function Joining({ name, code, onClose }: { name: string; code: string; onClose: () => void }) {
  return (
    <Dialog title={`Add ${name}`} dismissible={false} onClose={onClose}>
      <p>
        Run this on <strong>{name}</strong> within 15 minutes, as root or as the user that backs up. It works once, and gives the
        machine a token of its own.
      </p>
      <Command text={`holdfast agent join ${code}`} label="Join" />
      <p className="muted">From then on, holdfast backup needs no settings there.</p>
      <Done onClose={onClose} />
    </Dialog>
  );
}

function Done({ onClose }: { onClose: () => void }) {
  return (
    <div className="form-actions">
      <button type="button" className="button button-primary" onClick={onClose}>
        I have copied it
      </button>
    </div>
  );
}

function Token({ name, token, onClose }: { name: string; token: string; onClose: () => void }) {
  const server = useServer().data;
  const login = server === undefined ? undefined : loginCommand(window.location.hostname, server.grpc_address, server.fingerprint);
  return (
    <Dialog title={`Token ${name}`} dismissible={false} onClose={onClose}>
      <div className="note note-warn">
        <Icon name="warn" />
        <p>Copy the token now: it is shown only once, and the server keeps only a hash of it.</p>
      </div>
      <div className="secret">
        <code data-testid="new-token">{token}</code>
        <CopyButton text={token} label="Copy token" />
      </div>
      {login !== undefined && (
        <>
          <p>
            On the machine that will use it, save it in a file called <code>token</code>, then run:
          </p>
          <Command text={login} label="Log in" />
        </>
      )}
      <Done onClose={onClose} />
    </Dialog>
  );
}
