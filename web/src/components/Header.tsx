/** The bar above every page: its links, the state of the live connection, who is logged in. */

import { useState } from "react";
import { Link, useLocation } from "wouter";

import { useNamespaces, useServer } from "../api/queries";
import { coversAll, coversEveryVm, may, useLogout, useWho } from "../api/session";
import type { Action, Session } from "../api/schema";
import { useLiveState } from "../api/useLive";
import { Icon, Mark, type IconName } from "./icons";
import { link, useNamespace, useParams } from "./location";
import { Menu } from "./Menu";
import { setTheme, useTheme, type Theme } from "./theme";

interface Place {
  path: string;
  label: string;
  short: string;
  icon: IconName;
  action: Action;
  /** Only for tokens that cover so much. */
  covers?: (session: Session) => boolean;
  /** Only where copies are kept in a bucket. */
  bucket?: boolean;
}

/** Every page with a link, and the action a role needs for it. */
export const PLACES: readonly Place[] = [
  { path: "/", label: "Overview", short: "Overview", icon: "overview", action: "report" },
  { path: "/details", label: "Compression details", short: "Details", icon: "details", action: "report" },
  { path: "/vms", label: "VMs", short: "VMs", icon: "vms", action: "catalog" },
  { path: "/namespaces", label: "Namespaces", short: "Names", icon: "person", action: "catalog" },
  { path: "/retention", label: "Retention", short: "Retention", icon: "keep", action: "catalog" },
  { path: "/tasks", label: "Tasks", short: "Tasks", icon: "tasks", action: "operate", covers: coversEveryVm },
  { path: "/storage", label: "Storage", short: "Storage", icon: "storage", action: "operate", covers: coversAll },
  { path: "/bucket", label: "Bucket", short: "Bucket", icon: "bucket", action: "operate", covers: coversAll, bucket: true },
  { path: "/access", label: "Access", short: "Access", icon: "access", action: "manage_tokens" },
];

export function Header() {
  const session = useWho();
  const namespace = useNamespace();
  const [path] = useLocation();
  // Until the answer is there, as without one.
  const hasBucket = useServer().data?.bucket ?? false;
  return (
    <header className="header">
      <div className="header-row">
        <Link href={link("/", { namespace })} className="brand" aria-label="Holdfast overview">
          <Mark />
          <span className="brand-name">Holdfast</span>
        </Link>
        <nav className="nav" aria-label="Pages">
          {PLACES.filter((place) => may(session, place.action) && (place.covers?.(session) ?? true) && (place.bucket !== true || hasBucket)).map((place) => {
            const here = place.path === "/" ? path === "/" : path === place.path || path.startsWith(`${place.path}/`);
            return (
              <Link
                key={place.path}
                href={link(place.path, { namespace })}
                className="nav-link"
                aria-current={here ? "page" : undefined}
                aria-label={place.label}
              >
                <Icon name={place.icon} />
                <span className="nav-long">{place.label}</span>
                <span className="nav-short" aria-hidden="true">
                  {place.short}
                </span>
              </Link>
            );
          })}
        </nav>
        <div className="header-tools">
          <NamespaceFilter />
          <LiveIndicator />
          <ThemeToggle />
          <Who />
        </div>
      </div>
    </header>
  );
}

function NamespaceFilter() {
  const namespaces = useNamespaces().data?.items ?? [];
  const [params, change] = useParams();
  const chosen = params.get("namespace") ?? "";
  const names = namespaces.map((namespace) => namespace.name);
  // With a single one there is nothing to choose, unless a link names one that does not exist.
  if (names.length < 2 && (chosen === "" || names.includes(chosen))) return null;
  if (chosen !== "" && !names.includes(chosen)) names.push(chosen);
  return (
    <label className="namespace" data-term="namespace">
      <span className="visually-hidden">Namespace</span>
      <select value={chosen} onChange={(event) => change({ namespace: event.target.value }, false)}>
        <option value="">All namespaces</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

const LIVE = {
  connecting: ["Connecting", "Connecting to the server for live updates."],
  live: ["Live", "Changes on the server appear here immediately."],
  reconnecting: ["Reconnecting", "The connection to the server was lost, and this page may be out of date. It reconnects automatically."],
} as const;

export function LiveIndicator() {
  const state = useLiveState();
  const [word, said] = LIVE[state];
  return (
    <span className={`live live-${state}`} role="status" tabIndex={0} data-exact={said} aria-label={`${word}. ${said}`}>
      <span className="live-dot" aria-hidden="true" />
      <span className="live-word">{word}</span>
    </span>
  );
}

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const THEME_ICON: Record<Theme, IconName> = { auto: "auto", light: "sun", dark: "moon" };
const THEME_WORD: Record<Theme, string> = { auto: "system", light: "light", dark: "dark" };

function ThemeToggle() {
  const theme = useTheme();
  const next = NEXT_THEME[theme];
  return (
    <button
      type="button"
      className="button button-icon"
      aria-label={`Colours: ${THEME_WORD[theme]}. Switch to ${THEME_WORD[next]}.`}
      data-exact={`Colours: ${THEME_WORD[theme]}`}
      onClick={() => setTheme(next)}
    >
      <Icon name={THEME_ICON[theme]} />
    </button>
  );
}

function Who() {
  const session = useWho();
  const logout = useLogout();
  const [failed, setFailed] = useState(false);
  const scope = session.namespaces.length === 0 ? "all namespaces" : session.namespaces.join(", ");
  return (
    <Menu icon="person" label={<span className="who">{session.name}</span>} name="Session" align="end">
      {() => (
        <div className="who-panel">
          <p>
            Logged in with the token <strong>{session.name}</strong>
          </p>
          <p className="muted">
            Role {session.role}, {scope}
          </p>
          <p className="muted">Holdfast {session.version}</p>
          {failed && <p role="alert">The server did not respond; try again.</p>}
          <button type="button" className="button" onClick={() => void logout().catch(() => setFailed(true))}>
            <Icon name="logout" />
            Log out
          </button>
        </div>
      )}
    </Menu>
  );
}
