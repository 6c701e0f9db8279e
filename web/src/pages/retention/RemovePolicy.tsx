/** Asks before a policy is removed. */

import { useRemovePolicy } from "../../api/retention";
import type { Policy } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";
import { scopeOf } from "./rules";

export function RemovePolicy({ policy, onClose }: { policy: Policy; onClose: () => void }) {
  const remove = useRemovePolicy();
  return (
    <Dialog title={`Remove ${policy.name}?`} pending={remove.isPending} onClose={onClose}>
      <p>
        From then on a policy with a broader scope decides about the restore points of {scopeOf(policy)} in {policy.namespace}; where there is none,
        all of them are kept. What it locked stays locked.
      </p>
      {remove.error !== null && <ErrorNote error={remove.error} />}
      <FormActions word="Remove" busy="Removing…" danger pending={remove.isPending} onConfirm={() => remove.mutate(policy.id, { onSuccess: onClose })} onClose={onClose} />
    </Dialog>
  );
}
