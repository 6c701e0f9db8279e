/** A button that opens a panel below it. Escape, a click elsewhere and leaving it with Tab close it. */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";

import { Icon, type IconName } from "./icons";

interface MenuProps {
  label: ReactNode;
  icon?: IconName;
  /** What the panel is, for assistive technology. */
  name: string;
  align?: "start" | "end";
  children: (close: () => void) => ReactNode;
}

export function Menu({ label, icon, name, align = "start", children }: MenuProps) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();

  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) === false) setOpen(false);
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      button.current?.focus();
    };
    document.addEventListener("pointerdown", outside, true);
    document.addEventListener("focusin", outside, true);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("pointerdown", outside, true);
      document.removeEventListener("focusin", outside, true);
      document.removeEventListener("keydown", escape);
    };
  }, [open]);

  return (
    <div className="menu" ref={root}>
      <button
        ref={button}
        type="button"
        className="button"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        {icon !== undefined && <Icon name={icon} />}
        {label}
        <Icon name="chevron" className="menu-chevron" />
      </button>
      {open && (
        <div id={id} className={`menu-panel menu-${align}`} role="group" aria-label={name}>
          {/* oxlint-disable-next-line react/refs -- the panel calls it when something is chosen, not while it renders */}
          {children(() => {
            setOpen(false);
            button.current?.focus();
          })}
        </div>
      )}
    </div>
  );
}
