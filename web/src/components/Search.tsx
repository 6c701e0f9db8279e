/** A field for free text. The address follows what is typed after a pause; when the address changes, the field follows. */

import { useEffect, useEffectEvent, useRef, useState } from "react";

import { Icon } from "./icons";

const PAUSE_MS = 250;

export function Search({ value, placeholder, onChange }: { value: string; placeholder: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const tell = useEffectEvent((next: string) => {
    told.current = next;
    onChange(next);
  });
  useEffect(() => {
    if (value !== told.current) setText(value);
    told.current = value;
  }, [value]);
  // Only typing starts the pause; a new `onChange` does not.
  useEffect(() => {
    if (text === told.current) return;
    const timer = setTimeout(() => tell(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <label className="search">
      <Icon name="search" />
      <span className="visually-hidden">Search</span>
      <input type="search" placeholder={placeholder} value={text} onChange={(event) => setText(event.target.value)} />
    </label>
  );
}
