/** A number that matters, large, with its name above and a line of context below. */

import type { ReactNode } from "react";

import type { Term } from "../format/definitions";
import { TermLabel, Value, type Kind } from "./Value";

interface StatProps {
  term: Term;
  kind: Kind;
  value: number | string | null | undefined;
  children?: ReactNode;
}

export function Stat({ term, kind, value, children }: StatProps) {
  return (
    <div className="stat">
      <TermLabel term={term} />
      <Value term={term} kind={kind} value={value} className="stat-value" />
      {children !== undefined && <p className="stat-note">{children}</p>}
    </div>
  );
}

/** Names and numbers in two columns. */
export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ term, kind, value, label }: { term: Term; kind: Kind; value: number | string | null | undefined; label?: string }) {
  return (
    <div className="fact">
      <dt>
        <TermLabel term={term}>{label}</TermLabel>
      </dt>
      <dd>
        <Value term={term} kind={kind} value={value} />
      </dd>
    </div>
  );
}
