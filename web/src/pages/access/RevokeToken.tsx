/** Asks before a token is revoked for good. */

import { useRevokeToken } from "../../api/queries";
import type { TokenRecord } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { relative } from "../../format/time";

export function RevokeToken({ token, onClose }: { token: TokenRecord; onClose: () => void }) {
  const revoke = useRevokeToken();
  return (
    <Dialog title={`Revoke ${token.name}?`} pending={revoke.isPending} onClose={onClose}>
      <p>
        Its next request is refused, and backups and restores that are running with it end. This cannot be undone, but you
        can create a new token.
      </p>
      <p className="muted">
        Role {token.role}, {token.last_used === null ? "never used" : `last used ${relative(token.last_used)}`}
      </p>
      {token.current && <p>This is the token you are logged in with: you will be logged out.</p>}
      {revoke.error !== null && <ErrorNote error={revoke.error} />}
      <FormActions word="Revoke" busy="Revoking…" danger pending={revoke.isPending} onConfirm={() => revoke.mutate(token.id, { onSuccess: onClose })} onClose={onClose} />
    </Dialog>
  );
}
