/** Providers, the login gate and the routes. Pages are loaded when they are first opened. */

import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { Component, lazy, Suspense, useEffect, useRef, type ReactNode } from "react";
import { Route, Switch } from "wouter";
import { usePathname } from "wouter/use-browser-location";

import { coversAll, coversEveryVm, may, SessionGate, useWho } from "./api/session";
import type { Action, Session } from "./api/schema";
import { LiveProvider } from "./api/useLive";
import { DamageBanner } from "./components/DamageBanner";
import { EncryptionBanner } from "./components/EncryptionBanner";
import { Empty, ErrorNote, Skeleton } from "./components/Feedback";
import { Header, PLACES } from "./components/Header";
import { Icon, Mark } from "./components/icons";
import { vmOf } from "./components/location";
import { Glossary, TooltipLayer } from "./components/Tooltip";
import { plural } from "./format/numbers";
import { Login } from "./pages/login/Login";

const Overview = lazy(() => import("./pages/overview/Overview"));
const Details = lazy(() => import("./pages/details/Details"));
const Vms = lazy(() => import("./pages/vms/Vms"));
const Vm = lazy(() => import("./pages/vm/Vm"));
const Namespaces = lazy(() => import("./pages/namespaces/Namespaces"));
const Retention = lazy(() => import("./pages/retention/Retention"));
const Tasks = lazy(() => import("./pages/tasks/Tasks"));
const Storage = lazy(() => import("./pages/storage/Storage"));
const Tiers = lazy(() => import("./pages/tiers/Tiers"));
const Access = lazy(() => import("./pages/access/Access"));

export function App({ client }: { client: QueryClient }) {
  return (
    <QueryClientProvider client={client}>
      <SessionGate login={<Login />} Waiting={Waiting}>
        <LiveProvider>
          <a className="skip" href="#main">
            Skip to content
          </a>
          <Header />
          <Main />
        </LiveProvider>
      </SessionGate>
      <Glossary />
      <TooltipLayer />
    </QueryClientProvider>
  );
}

function Waiting({ error }: { error: unknown }) {
  return (
    <main className="waiting">
      <Mark />
      {error === null ? <Skeleton lines={2} /> : <ErrorNote error={error} />}
    </main>
  );
}

function Main() {
  const main = useRef<HTMLElement>(null);
  const path = usePathname();
  const vm = vmOf(path);
  const first = useRef(true);
  useEffect(() => {
    document.title = titleOf(path);
  }, [path]);
  // A new page is shown from its top, and has the focus.
  useEffect(() => {
    if (!first.current) {
      window.scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [path]);
  return (
    <main id="main" ref={main} tabIndex={-1}>
      <Replaced />
      <DamageBanner />
      <EncryptionBanner />
      <Caught key={path}>
        <Suspense fallback={<Skeleton lines={6} height={480} />}>
          <Switch>
            <Route path="/">{page("report", <Overview />)}</Route>
            <Route path="/details">{page("report", <Details />)}</Route>
            <Route path="/vms">{page("catalog", <Vms />)}</Route>
            {vm !== null && <Route path="/vms/:namespace/:vm">{page("catalog", <Vm {...vm} />)}</Route>}
            <Route path="/namespaces">{page("catalog", <Namespaces />)}</Route>
            <Route path="/retention">{page("catalog", <Retention />)}</Route>
            <Route path="/tasks">{page("operate", <Tasks />, coversEveryVm)}</Route>
            <Route path="/storage">{page("operate", <Storage />, coversAll)}</Route>
            <Route path="/bucket">{page("operate", <Tiers />, coversAll)}</Route>
            <Route path="/access">{page("manage_tokens", <Access />)}</Route>
            <Route>
              <Empty title="Page not found">
                <p>Choose one of the pages at the top.</p>
              </Empty>
            </Route>
          </Switch>
        </Suspense>
      </Caught>
    </main>
  );
}

/** Says that another tab's login became this one's, too. */
function Replaced() {
  const { name, replaced } = useWho();
  if (replaced === undefined) return null;
  return (
    <p className="note note-warn banner" role="status">
      <Icon name="person" />
      Another tab logged in as {name}. What was open here, as {replaced}, was closed; what was just asked for may not have been done.
    </p>
  );
}

/** The title of the browser tab: the VM or the page, then the product. */
function titleOf(path: string): string {
  const name = vmOf(path)?.vm ?? PLACES.find((place) => place.path === path)?.label;
  return name === undefined ? "Holdfast" : `${name} · Holdfast`;
}

const page = (action: Action, children: ReactNode, covers: AllowedProps["covers"] = () => true) => (
  <Allowed action={action} covers={covers}>
    {children}
  </Allowed>
);

interface AllowedProps {
  action: Action;
  /** Whether the token covers as much as the page is about. */
  covers: (session: Session) => boolean;
  children: ReactNode;
}

/** A page for roles that have access to it, and an explanation for the others. */
function Allowed({ action, covers, children }: AllowedProps) {
  const session = useWho();
  if (may(session, action) && covers(session)) return children;
  if (may(session, action) && coversAll(session)) {
    return (
      <Empty title="This page covers every VM">
        <p>
          The token <strong>{session.name}</strong> is limited to some VMs. To see this page, log in with a token for all VMs.
        </p>
      </Empty>
    );
  }
  if (may(session, action)) {
    return (
      <Empty title="This page covers the whole repository">
        <p>
          The token <strong>{session.name}</strong> is limited to {plural(session.namespaces.length, "namespace")}:{" "}
          {session.namespaces.join(", ")}. To see this page, log in with a token for all namespaces.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="Your role has no access to this page">
      <p>
        The token <strong>{session.name}</strong> has the role <strong>{session.role}</strong>. Log in with a token that
        has another role, or ask an administrator to create one:
      </p>
      <p>
        <code>holdfast-server token create --name NAME --role {action === "manage_tokens" ? "admin" : "operator"}</code>
      </p>
    </Empty>
  );
}

/** A page that fails to render, or to load after an upgrade of the server, must not take the header with it. */
class Caught extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return <ErrorNote error={this.state.error} onRetry={() => window.location.reload()} />;
  }
}
