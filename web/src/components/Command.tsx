/** Text to copy: a command, a token. */

import { useEffect, useState } from "react";

import { Icon } from "./icons";

const SAID_MS = 2_000;

/** Copies through the clipboard interface, or by a selection where there is none (without a secure context). */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <button
      type="button"
      className="button button-small"
      onClick={() => void copy(text).then((done) => setSaid(done ? "Copied" : "Copy it by hand"))}
    >
      <Icon name={said === "Copied" ? "check" : "copy"} />
      <span aria-live="polite">{said ?? label}</span>
    </button>
  );
}

/** A command line, as it is typed. */
export function Command({ text, label }: { text: string; label?: string }) {
  return (
    <div className="command">
      <pre tabIndex={0} aria-label={label ?? "Command"}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </div>
  );
}
