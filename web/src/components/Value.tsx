/** Numbers and their names. The tooltip shows the definition and the exact value of each. */

import type { ReactNode } from "react";

import { bytes, exactBytes } from "../format/bytes";
import { definition, type Term } from "../format/definitions";
import { count, dollars, duration, factor, percent, rate } from "../format/numbers";
import { minute, relative } from "../format/time";
import { glossaryId } from "./Tooltip";

export type Kind = "bytes" | "count" | "factor" | "percent" | "seconds" | "rate" | "byte_rate" | "dollars" | "time" | "ago" | "text";

type Raw = number | string | null | undefined;

/** A value in its display format. */
export function show(kind: Kind, value: Raw): string {
  if (kind === "text") return value === null || value === undefined || value === "" ? "–" : String(value);
  if (kind === "time") return minute(value as string | null);
  if (kind === "ago") return relative(value as string | null);
  const number = value as number | null | undefined;
  switch (kind) {
    case "bytes":
      return bytes(number);
    case "byte_rate":
      return number === null || number === undefined ? "–" : `${bytes(number)}/s`;
    case "count":
      return count(number);
    case "dollars":
      return dollars(number);
    case "factor":
      return factor(number);
    case "percent":
      return percent(number);
    case "seconds":
      return duration(number);
    case "rate":
      return rate(number);
  }
}

/** The same value to the last digit, for the tooltip. */
export function exact(kind: Kind, value: Raw, term?: Term): string {
  if (value === null || value === undefined || value === "") return "";
  if (kind === "time" || kind === "ago") return String(value);
  if (typeof value !== "number") return "";
  if (kind === "bytes") return exactBytes(value);
  if (kind === "byte_rate") return `${exactBytes(value)} per second`;
  if (kind === "dollars") return `$${value.toFixed(9).replace(/0{1,7}$/, "")}`;
  const unit = term === undefined ? "" : (definition(term).unit ?? "");
  const digits = value.toLocaleString("en-US", { maximumFractionDigits: 4 });
  return kind === "factor" ? `${digits}×` : unit === "" ? digits : `${digits} ${unit}`;
}

/** Attributes that make an element show the tooltip. */
export const tip = (term: Term | undefined, kind: Kind, value: Raw) => ({
  "data-term": term,
  "data-exact": exact(kind, value, term) || undefined,
});

interface ValueProps {
  term: Term;
  kind: Kind;
  value: Raw;
  className?: string;
}

/** A number on its own: can take focus, so that the keyboard reaches its tooltip. */
export function Value({ term, kind, value, className = "" }: ValueProps) {
  return (
    <span
      className={`value ${className}`}
      tabIndex={0}
      role="note"
      aria-label={`${definition(term).label}: ${show(kind, value)}`}
      aria-describedby={glossaryId(term)}
      {...tip(term, kind, value)}
    >
      {show(kind, value)}
    </span>
  );
}

/** A term of the glossary; hover, focus or touch shows its definition. */
export function TermLabel({ term, children }: { term: Term; children?: ReactNode }) {
  return (
    <button type="button" className="term" data-term={term} aria-describedby={glossaryId(term)}>
      {children ?? definition(term).label}
    </button>
  );
}
