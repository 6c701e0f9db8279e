/** A field for each rule; an empty one is no rule. */

import { RULES, ruleOf, type RuleTexts } from "./rules";

export function RuleFields({ texts, onChange }: { texts: RuleTexts; onChange: (texts: RuleTexts) => void }) {
  return (
    <fieldset className="field">
      <legend>Keep</legend>
      <div className="rules">
        {RULES.map(([name, label, unit]) => (
          <label key={name} className="rule">
            <span className="rule-name">{label}</span>
            <input
              name={name}
              inputMode="numeric"
              autoComplete="off"
              placeholder="–"
              value={texts[name]}
              data-exact={unit}
              aria-invalid={ruleOf(name, texts[name]) === undefined}
              onChange={(event) => onChange({ ...texts, [name]: event.target.value })}
            />
            {name === "keep_within_days" && <span className="muted">days</span>}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
