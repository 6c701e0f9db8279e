/** A modal dialog or drawer on the platform's <dialog>: it keeps the focus, Escape closes it. */

import { useEffect, useId, useRef, type ReactNode } from "react";

import { Icon } from "./icons";

interface DialogProps {
  title: ReactNode;
  /** A drawer comes from the side and is as high as the window. */
  drawer?: boolean;
  /** Whether a click beside it closes it; false where something shown only once would be lost. */
  dismissible?: boolean;
  /** Whether an answer is awaited: it stays until that is there, or no one would see what became of it. */
  pending?: boolean;
  tools?: ReactNode;
  onClose: () => void;
  children: ReactNode;
}

export function Dialog({ title, drawer = false, dismissible: may = true, pending = false, tools, onClose, children }: DialogProps) {
  const dismissible = may && !pending;
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (dialog === null || dialog.open) return;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    // A click beside it is a shortcut: Escape and the button do the same.
    // oxlint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog
      ref={ref}
      className={drawer ? "dialog drawer" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (dismissible) onClose();
      }}
      onClose={() => {
        // Chromium closes it by itself when Escape is pressed a second time.
        if (ref.current?.open !== false) return;
        if (dismissible) onClose();
        else ref.current.showModal();
      }}
      onClick={(event) => {
        if (dismissible && event.target === ref.current) onClose();
      }}
    >
      <div className="dialog-body">
        <div className="dialog-head">
          <h2 id={id}>{title}</h2>
          {tools}
          {dismissible && (
            <button type="button" className="button button-icon" aria-label="Close" onClick={onClose}>
              <Icon name="close" />
            </button>
          )}
        </div>
        {children}
      </div>
    </dialog>
  );
}

interface FormActionsProps {
  /** What is done, and what is said while it is. */
  word: ReactNode;
  busy: string;
  pending: boolean;
  disabled?: boolean;
  danger?: boolean;
  /** Without it the button submits its form. */
  onConfirm?: () => void;
  onClose: () => void;
}

/** The buttons below a dialog. While an answer is awaited neither does anything. */
export function FormActions({ word, busy, pending, disabled = false, danger = false, onConfirm, onClose }: FormActionsProps) {
  return (
    <div className="form-actions">
      <button type="button" className="button" disabled={pending} onClick={onClose}>
        Cancel
      </button>
      <button type={onConfirm === undefined ? "submit" : "button"} className={`button ${danger ? "button-danger" : "button-primary"}`} disabled={pending || disabled} onClick={onConfirm}>
        {pending ? busy : word}
      </button>
    </div>
  );
}
