/** The only time a token's text is shown. A click beside the dialog does not close it. */

import { useServer } from "../../api/queries";
import type { CreatedToken } from "../../api/schema";
import { Command, CopyButton } from "../../components/Command";
import { Dialog } from "../../components/Dialog";
import { firstCommands } from "../../components/FirstBackup";
import { Icon } from "../../components/icons";

export function NewTokenDialog({ made, onClose }: { made: CreatedToken; onClose: () => void }) {
  const server = useServer().data;
  const [login] = server === undefined ? [] : firstCommands(window.location.hostname, server.grpc_address, server.fingerprint);
  return (
    <Dialog title={`Token ${made.record.name}`} dismissible={false} onClose={onClose}>
      <div className="note note-warn">
        <Icon name="warn" />
        <p>Copy the token now: it is shown only once, and the server keeps only a hash of it.</p>
      </div>
      <div className="secret">
        <code data-testid="new-token">{made.token}</code>
        <CopyButton text={made.token} label="Copy token" />
      </div>
      {login !== undefined && (
        <>
          <p>
            On the machine that will use it, save it in a file called <code>token</code>, then run:
          </p>
          <Command text={login} label="Log in" />
        </>
      )}
      <div className="form-actions">
        <button type="button" className="button button-primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </Dialog>
  );
}
