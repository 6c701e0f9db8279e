/** Access: who may do what, and who did what. */

import { useState } from "react";

import { useTokens } from "../../api/queries";
import type { CreatedToken, TokenRecord } from "../../api/schema";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { Agents } from "./Agents";
import { Audit } from "./Audit";
import { CreateToken } from "./CreateToken";
import { NewTokenDialog } from "./NewTokenDialog";
import { RevokeToken } from "./RevokeToken";
import { Tokens } from "./Tokens";

export default function Access() {
  const tokens = useTokens();
  const [creating, setCreating] = useState<"token" | "join" | null>(null);
  const [made, setMade] = useState<CreatedToken | null>(null);
  const [revoking, setRevoking] = useState<TokenRecord | null>(null);
  return (
    <div className="page page-access">
      <h1>Access</h1>
      <Card
        title="Tokens"
        hint="Add each hypervisor by a line that it runs once. Create a token for each person and each script, with the least role that suffices. Keep the admin token off hypervisors."
        actions={
          <>
            <button type="button" className="button button-primary" onClick={() => setCreating("join")}>
              <Icon name="plus" />
              Add hypervisor
            </button>
            <button type="button" className="button" onClick={() => setCreating("token")}>
              <Icon name="plus" />
              Create a token
            </button>
          </>
        }
      >
        <Async query={tokens} height={200}>
          {(page) => <Tokens tokens={page.items} onRevoke={setRevoking} />}
        </Async>
      </Card>
      <Agents />
      <Audit />
      {creating !== null && (
        <CreateToken
          join={creating === "join"}
          onClose={() => setCreating(null)}
          onMade={(answer) => {
            setCreating(null);
            setMade(answer);
          }}
        />
      )}
      {made !== null && <NewTokenDialog made={made} onClose={() => setMade(null)} />}
      {revoking !== null && <RevokeToken token={revoking} onClose={() => setRevoking(null)} />}
    </div>
  );
}
