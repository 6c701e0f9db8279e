/** A part of a page with a heading. */

import { useId, type ReactNode } from "react";

interface CardProps {
  title: ReactNode;
  /** To the right of the heading. */
  actions?: ReactNode;
  /** One line under the heading. */
  hint?: ReactNode;
  className?: string;
  children: ReactNode;
}

export function Card({ title, actions, hint, className = "", children }: CardProps) {
  const id = useId();
  return (
    <section className={`card ${className}`} aria-labelledby={id}>
      <div className="card-head">
        <h2 id={id}>{title}</h2>
        {actions !== undefined && <div className="card-actions">{actions}</div>}
      </div>
      {hint !== undefined && <p className="card-hint">{hint}</p>}
      {children}
    </section>
  );
}
