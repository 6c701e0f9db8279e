/** Who is logged in, for every page. */

import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { createContext, Fragment, useContext, useEffect, type ComponentType, type ReactNode } from "react";

import { post, setCsrf, setOnRefused } from "./client";
import { forget, useSession, type Who } from "./queries";
import type { Action, Session } from "./schema";

const SessionContext = createContext<Who | null>(null);

/** The session of the logged-in user. Only below {@link SessionGate}. */
export function useWho(): Who {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("useWho is for pages behind the login");
  return session;
}

/** Whether the role may do `action` at all; the server decides each request. */
export const may = (session: Session, action: Action): boolean => session.actions.includes(action);

/** Whether the token covers the whole repository. Only then can it see what is not split by namespace. */
export const coversAll = (session: Session): boolean => session.namespaces.length === 0;

/** Whether the token covers every VM of the whole repository. Only then can it see tasks, which are not split by VM. */
export const coversEveryVm = (session: Session): boolean => coversAll(session) && session.every_vm;

interface GateProps {
  /** Shown when no one is logged in. The address stays, so that the wanted page follows the login. */
  login: ReactNode;
  /** Shown until the server has answered. */
  Waiting: ComponentType<{ error: unknown }>;
  children: ReactNode;
}

export function SessionGate({ login, Waiting, children }: GateProps) {
  const query = useSession();
  const client = useQueryClient();
  const session = query.data;
  useEffect(() => {
    setOnRefused((status) => {
      if (status === 403) void client.refetchQueries({ queryKey: ["session"] }, { cancelRefetch: false });
      else if (client.getQueryData(["session"])) client.setQueryData(["session"], null);
    });
  }, [client]);
  // Before the children render: their first request may need it.
  setCsrf(session?.csrf ?? null);
  if (session === undefined) return <Waiting error={query.error ?? query.failureReason} />;
  if (session === null) return login;
  // Another login begins with nothing that the one before had open.
  return (
    <SessionContext.Provider value={session}>
      <Fragment key={session.csrf}>{children}</Fragment>
    </SessionContext.Provider>
  );
}

/** Another user, or none: what the previous one was shown is forgotten. */
function become(client: QueryClient, session: Session | null): void {
  client.setQueryData(["session"], session);
  forget(client);
}

/** Exchanges a token for a session cookie. */
export function useLogin(): (token: string) => Promise<void> {
  const client = useQueryClient();
  return async (token) => {
    become(client, await post("/login", { token }));
  };
}

/** Ends the session here and at the server. */
export function useLogout(): () => Promise<void> {
  const client = useQueryClient();
  return async () => {
    await post("/logout");
    become(client, null);
  };
}
