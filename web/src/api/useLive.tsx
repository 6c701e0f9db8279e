/** The live connection in React: its state goes to the header, its events into the query cache. */

import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";

import { LiveConnection, Paced, type LiveState } from "./live";
import { ACTIVITY_KEY, invalidated } from "./queries";
import type { ChangedSubject } from "./schema";

const LiveContext = createContext<LiveState>("connecting");

export const useLiveState = (): LiveState => useContext(LiveContext);

export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [state, setState] = useState<LiveState>("connecting");
  useEffect(() => {
    // What is asked already goes on: begun anew every half minute, a slow answer would never come.
    const options = { cancelRefetch: false };
    const paced = new Paced<ChangedSubject | "everything">((what) =>
      what.includes("everything")
        ? client.invalidateQueries({}, options)
        : invalidated(client, what.filter((one) => one !== "everything"), options),
    );
    const connection = new LiveConnection({
      onState: (next) => {
        setState(next);
        // An event stream does not tell why it failed. Perhaps the session ended: then the login page is shown.
        if (next === "reconnecting") void client.refetchQueries({ queryKey: ["session"] });
      },
      onActivity: (activity) => client.setQueryData(ACTIVITY_KEY, activity),
      onChanged: (what) => paced.add(what),
      onReconnect: () => paced.add(["everything"]),
    });
    return () => {
      connection.close();
      paced.close();
    };
  }, [client]);
  return <LiveContext.Provider value={state}>{children}</LiveContext.Provider>;
}
