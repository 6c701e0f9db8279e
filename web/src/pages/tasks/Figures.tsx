/** What a task came to, as its kind says it. */

import type { Task } from "../../api/schema";
import { TermLabel } from "../../components/Value";
import { figuresOf } from "./words";

export function Figures({ figures }: { figures: Task["figures"] }) {
  const found = figuresOf(figures);
  if (found.length === 0) return null;
  return (
    <dl className="session-facts">
      {found.map(({ name, label, text, term }) => (
        <div key={name}>
          <dt>{term === undefined ? label : <TermLabel term={term} />}</dt>
          <dd data-exact={typeof figures[name] === "number" ? figures[name].toLocaleString("en-US") : undefined}>{text}</dd>
        </div>
      ))}
    </dl>
  );
}
