/** Whose the VM is, and the dialog in which an operator changes it. */

import { useState, type SubmitEvent } from "react";

import { useChangeOwner } from "../../api/queries";
import type { VmDetail } from "../../api/schema";
import { may, useWho } from "../../api/session";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { TermLabel } from "../../components/Value";

export function Owner({ vm }: { vm: VmDetail }) {
  const [open, setOpen] = useState(false);
  const session = useWho();
  return (
    <span className="nowrap">
      <TermLabel term="vm_owner" /> {vm.owner === null ? <span className="muted">none yet</span> : <strong>{vm.owner}</strong>}{" "}
      {may(session, "operate") && (
        <button type="button" className="button button-small" onClick={() => setOpen(true)}>
          Change owner
        </button>
      )}
      {open && <ChangeOwner vm={vm} onClose={() => setOpen(false)} />}
    </span>
  );
}

function ChangeOwner({ vm, onClose }: { vm: VmDetail; onClose: () => void }) {
  const change = useChangeOwner(vm.namespace, vm.vm);
  const [owner, setOwner] = useState(vm.owner ?? "");
  const wanted = owner.trim();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    change.mutate(wanted, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Change the owner of ${vm.vm} in ${vm.namespace}`} pending={change.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p>
          Tokens of the present owner can no longer back it up. The next backup reads the whole VM, because it does not rely
          on what the present owner said of it.
        </p>
        <label className="field">
          <span>New owner</span>
          <input name="owner" required maxLength={200} value={owner} autoComplete="off" onChange={(event) => setOwner(event.target.value)} />
        </label>
        {change.error !== null && <ErrorNote error={change.error} />}
        <FormActions word="Change owner" busy="Changing…" pending={change.isPending} disabled={wanted === "" || wanted === vm.owner} onClose={onClose} />
      </form>
    </Dialog>
  );
}
