/** The rules of a policy, in the order in which they are shown. */

import type { Policy, Rules } from "../../api/schema";

export type RuleName = keyof Rules;

export const RULES: readonly [name: RuleName, label: string, unit: string][] = [
  ["keep_last", "Last", "the newest"],
  ["keep_hourly", "Hourly", "the newest of each hour"],
  ["keep_daily", "Daily", "the newest of each day"],
  ["keep_weekly", "Weekly", "the newest of each week"],
  ["keep_monthly", "Monthly", "the newest of each month"],
  ["keep_yearly", "Yearly", "the newest of each year"],
  ["keep_within_days", "Within", "days before the newest: all"],
];

/** The most that a rule may say; the server refuses more. */
const KEEP_MAX = 100_000;
const WITHIN_DAYS_MAX = 36_525;

/** What was typed for each rule. */
export type RuleTexts = Readonly<Record<RuleName, string>>;

export const NO_RULES: RuleTexts = {
  keep_last: "",
  keep_hourly: "",
  keep_daily: "",
  keep_weekly: "",
  keep_monthly: "",
  keep_yearly: "",
  keep_within_days: "",
};

/** Zero is no rule, shown as an empty field. */
export const textsOf = (rules: Rules): RuleTexts => {
  const text = (name: RuleName) => (rules[name] === 0 ? "" : String(rules[name]));
  return Object.fromEntries(RULES.map(([name]) => [name, text(name)])) as Record<RuleName, string>;
};

/** A whole number up to `most`; null: an empty field; undefined: something else. */
export function wholeOf(text: string, most: number): number | null | undefined {
  const typed = text.trim();
  if (typed === "") return null;
  return /^\d+$/.test(typed) && Number(typed) <= most ? Number(typed) : undefined;
}

/** The number of a rule; `undefined` when the server does not take it. */
export function ruleOf(name: RuleName, text: string): number | undefined {
  const value = wholeOf(text, name === "keep_within_days" ? WITHIN_DAYS_MAX : KEEP_MAX);
  return value === null ? 0 : value;
}

/** The rules that were typed; `undefined` when one of them makes no sense. */
export function rulesOf(texts: RuleTexts): Rules | undefined {
  const rules: Rules = { keep_last: 0, keep_hourly: 0, keep_daily: 0, keep_weekly: 0, keep_monthly: 0, keep_yearly: 0, keep_within_days: 0 };
  for (const [name] of RULES) {
    const value = ruleOf(name, texts[name]);
    if (value === undefined) return undefined;
    rules[name] = value;
  }
  return rules;
}

/** `7 daily, 4 weekly, all within 14 d`. */
export function inWords(rules: Rules): string {
  const said = RULES.flatMap(([name, label]) => {
    const value = rules[name];
    if (value === 0) return [];
    return [name === "keep_within_days" ? `all within ${value} d` : `${value} ${label.toLowerCase()}`];
  });
  return said.length === 0 ? "everything" : said.join(", ");
}

/** Whose restore points a policy decides about. */
export function scopeOf({ vm, job }: Pick<Policy, "vm" | "job">): string {
  if (vm !== null && job !== null) return `VM ${vm}, job ${job}`;
  if (vm !== null) return `VM ${vm}`;
  return job === null ? "every VM" : `job ${job}`;
}
