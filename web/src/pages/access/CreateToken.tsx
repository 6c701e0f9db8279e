/** The form for a new token, or for a hypervisor that joins and gets one. */

import { useState, type SubmitEvent } from "react";

import { useCreateToken, useNamespaces } from "../../api/queries";
import type { CreatedToken, Role } from "../../api/schema";
import { Dialog, FormActions } from "../../components/Dialog";
import { ErrorNote } from "../../components/Feedback";

const ROLES: readonly [role: Role, text: string][] = [
  ["backup", "Backs up, and reads back within its namespaces. For hypervisors. Never deletes."],
  ["restore", "Lists, reports, restores and verifies. Never writes."],
  ["operator", "Everything except tokens and deciding what is kept. Runs policies and tasks."],
  ["admin", "Everything, in every namespace."],
];

const LIFETIMES: readonly [span: string, label: string][] = [
  ["", "Never"],
  ["7d", "In 7 days"],
  ["30d", "In 30 days"],
  ["90d", "In 90 days"],
  ["365d", "In a year"],
];

/** The patterns in a text that separates them by commas. */
const patterns = (text: string): string[] =>
  text
    .split(",")
    .map((each) => each.trim())
    .filter((each) => each !== "");

interface CreateTokenProps {
  /** For an agent, by a join code. */
  join: boolean;
  onMade: (made: CreatedToken) => void;
  onClose: () => void;
}

export function CreateToken({ join, onMade, onClose }: CreateTokenProps) {
  const create = useCreateToken();
  const known = useNamespaces().data?.items.map((namespace) => namespace.name) ?? [];
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("backup");
  const [namespaces, setNamespaces] = useState<string[]>([]);
  const [owner, setOwner] = useState("");
  const [vms, setVms] = useState("");
  const [lifetime, setLifetime] = useState("");
  const scoped = role !== "admin";

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const scope = scoped ? namespaces : [];
    create.mutate(
      {
        name: name.trim(),
        role,
        join,
        namespaces: scope,
        vm_patterns: scoped ? patterns(vms) : [],
        ...(owner.trim() === "" ? {} : { owner: owner.trim() }),
        ...(lifetime === "" ? {} : { expires_in: lifetime }),
      },
      { onSuccess: onMade },
    );
  };

  return (
    <Dialog title={join ? "Add hypervisor" : "Create a token"} pending={create.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <label className="field">
          <span>Name</span>
          <input name="name" required maxLength={64} value={name} placeholder="hv1, alice, …" autoComplete="off" onChange={(event) => setName(event.target.value)} />
        </label>
        <fieldset className="field roles">
          <legend>Role</legend>
          {ROLES.filter(([each]) => !join || each === "backup" || each === "restore").map(([each, text]) => (
            <label key={each} className="role">
              <input type="radio" name="role" value={each} checked={role === each} onChange={() => setRole(each)} />
              <span>
                <strong>{each}</strong>
                <span className="muted">{text}</span>
              </span>
            </label>
          ))}
        </fieldset>
        {scoped && known.length > 0 && (
          <fieldset className="field">
            <legend>Namespaces</legend>
            <p className="muted">Choose none to allow all of them.</p>
            <div className="options options-row">
              {known.map((each) => (
                <label key={each}>
                  <input
                    type="checkbox"
                    checked={namespaces.includes(each)}
                    onChange={(event) =>
                      setNamespaces(event.target.checked ? [...namespaces, each] : namespaces.filter((other) => other !== each))
                    }
                  />
                  {each}
                </label>
              ))}
            </div>
          </fieldset>
        )}
        <label className="field">
          <span>Owner of the VMs it backs up</span>
          <input name="owner" maxLength={200} value={owner} placeholder={name.trim() === "" ? "the token's name" : name.trim()} autoComplete="off" onChange={(event) => setOwner(event.target.value)} />
          <span className="muted">Give the hosts of a cluster the same, so that a migrated VM goes on.</span>
        </label>
        {scoped && (
          <label className="field">
            <span>VM names</span>
            <input name="vms" value={vms} placeholder="all, or web-*, db-?" autoComplete="off" onChange={(event) => setVms(event.target.value)} />
            <span className="muted">Separated by commas; * and ? are wildcards.</span>
          </label>
        )}
        <label className="field">
          <span>Expires</span>
          <select name="expires" value={lifetime} onChange={(event) => setLifetime(event.target.value)}>
            {LIFETIMES.map(([span, label]) => (
              <option key={span} value={span}>
                {label}
              </option>
            ))}
          </select>
        </label>
        {create.error !== null && <ErrorNote error={create.error} />}
        <FormActions word="Create" busy="Creating…" pending={create.isPending} disabled={name.trim() === ""} onClose={onClose} />
      </form>
    </Dialog>
  );
}
