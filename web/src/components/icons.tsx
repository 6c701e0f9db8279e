/** Icons, 16 px, drawn with the text's colour. Always decoration: the words are beside them. */

const PATHS = {
  overview: "M2 13V9.5M6 13V6M10 13V8M14 13V3",
  details: "M2 3.5h12M2 8h12M2 12.5h8",
  vms: "M2 3h12v7.5H2zM5.5 13.5h5M8 10.5v3",
  storage: "M2.5 4.2c0-1.2 2.5-2 5.5-2s5.5.8 5.5 2-2.5 2-5.5 2-5.5-.8-5.5-2zM2.5 4.2v7.6c0 1.2 2.5 2 5.5 2s5.5-.8 5.5-2V4.2M2.5 8c0 1.2 2.5 2 5.5 2s5.5-.8 5.5-2",
  access: "M10.5 2.2a3.3 3.3 0 1 1-2.9 4.9L2.5 12.2v1.6h2.2v-1.6h1.6v-1.6l2-2",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v1.4M8 13.6V15M1 8h1.4M13.6 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1z",
  auto: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM8 2v12M8 5h3.6M8 8h5.8M8 11h3.6",
  check: "M2.8 8.6l3.4 3.4 7-7.6",
  warn: "M8 2.2l6.3 11.3H1.7zM8 6.6v3.2M8 11.6v.2",
  fail: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8zM5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8",
  stop: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8zM5 8h6",
  clock: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8zM8 4.6V8l2.4 1.6",
  drop: "M2 4l4.5 4.5 2.5-2.5 5 6M14 8.4V12h-3.6",
  rise: "M2 12l4.5-4.5L9 10l5-6M14 7.6V4h-3.6",
  up: "M8 13V3.4M4 7.2l4-4 4 4",
  down: "M8 3v9.6M4 8.8l4 4 4-4",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  bucket: "M3 4.5h10l-1.2 9H4.2zM3 4.5c0-1.2 2.2-2 5-2s5 .8 5 2M5.5 8.2h5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  search: "M7 2.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6zM10.6 10.6l3.6 3.6",
  download: "M8 2v8M4.6 7L8 10.4 11.4 7M2.5 13.5h11",
  columns: "M2 3h12v10H2zM6 3v10M10 3v10",
  chevron: "M4 6l4 4 4-4",
  prev: "M10 3.5L5.5 8l4.5 4.5",
  next: "M6 3.5L10.5 8 6 12.5",
  person: "M8 2.2a2.9 2.9 0 1 1 0 5.8 2.9 2.9 0 0 1 0-5.8zM2.6 14c.4-3 2.6-4.4 5.4-4.4s5 1.4 5.4 4.4",
  logout: "M6 2.5H2.5v11H6M6.5 8H14M11 4.8L14 8l-3 3.2",
  chart: "M2 2v12h12M4.5 10.5l3-3.5 2.5 2 4-5",
  table: "M2 3h12v10H2zM2 6.5h12M2 9.8h12M6.5 3v10",
  plus: "M8 3v10M3 8h10",
  lock: "M3.5 7.5h9v6h-9zM5.3 7.5V5.2a2.7 2.7 0 0 1 5.4 0v2.3",
  hold: "M4 14V2.5M4 3h8l-2 2.8L12 8.6H4",
  keep: "M2.5 3.5h11v10h-11zM2.5 6.5h11M5.5 2v3M10.5 2v3M5.3 10l1.9 1.9 3.5-3.6",
  tasks: "M2 4l1.3 1.3L5.5 3M8 4.2h6M2 8.2l1.3 1.3 2.2-2.3M8 8.4h6M2 12.4l1.3 1.3 2.2-2.3M8 12.6h6",
  trash: "M2.5 4h11M6 4V2.5h4V4M4 4l.7 9.5h6.6L12 4M6.7 6.8v4M9.3 6.8v4",
  play: "M4.5 2.8v10.4L13 8z",
  pause: "M5 3v10M11 3v10",
  edit: "M3 13l.6-3L11 2.6l2.4 2.4L6 12.4z",
  info: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8zM8 7.4v3.8M8 4.8v.2",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, className = "" }: { name: IconName; className?: string }) {
  return (
    <svg className={`icon ${className}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The product's mark. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" width="28" height="28" aria-hidden="true" focusable="false">
      <rect className="mark-plate" width="32" height="32" rx="7" />
      <path className="mark-post" d="M9 7v18M23 7v18M9 16h14" />
      <path className="mark-line" d="M16 11v10" />
    </svg>
  );
}
