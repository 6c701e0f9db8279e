/** Above every page of an administrator while an encrypted repository could be lost with one file. */

import { useServer } from "../api/queries";
import { may, useWho } from "../api/session";
import { Command } from "./Command";
import { Icon } from "./icons";

export function EncryptionBanner() {
  return may(useWho(), "manage_tokens") ? <Banner /> : null;
}

function Banner() {
  // An error is shown by the page that needs the server.
  const encryption = useServer().data?.encryption;
  if (!encryption?.reminder) return null;
  return (
    <section className="note note-warn banner" aria-label="Recovery kit">
      <Icon name="warn" />
      <div>
        <p className="note-title">The repository is encrypted, and no recovery kit was exported</p>
        <p>When its key file is lost, so are all backups. Stop the server, print a recovery kit, and keep the page elsewhere:</p>
        <Command text="holdfast-server key export-kit" />
      </div>
    </section>
  );
}
