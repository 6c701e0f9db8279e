/** Login by token: the server turns it into a session cookie that scripts cannot read. */

import { useState, type SubmitEvent } from "react";

import { useLogin } from "../../api/session";
import { ApiError, explain } from "../../api/error";
import { Icon, Mark } from "../../components/icons";

export function Login() {
  const login = useLogin();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    login(token.trim())
      .catch(setError)
      .finally(() => setBusy(false));
  };

  return (
    <main className="login" id="main">
      <form className="login-card" onSubmit={submit}>
        <div className="login-brand">
          <Mark />
          <h1>Holdfast</h1>
        </div>
        <label className="field">
          <span>Token</span>
          <input
            type="password"
            name="token"
            autoComplete="current-password"
            placeholder="hf_…"
            spellCheck={false}
            required
            // oxlint-disable-next-line jsx-a11y/no-autofocus -- the page has nothing else to do
            autoFocus
            value={token}
            aria-invalid={error !== null}
            aria-describedby="login-help"
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        {error !== null && (
          <p className="login-error" role="alert">
            <Icon name="fail" />
            <span>{refusal(error)}</span>
          </p>
        )}
        <button type="submit" className="button button-primary" disabled={busy || token.trim() === ""}>
          {busy ? "Logging in…" : "Log in"}
        </button>
        <div className="login-help" id="login-help">
          <p>
            On its first start, the server wrote an admin token to <code>admin.token</code> in its data folder:
          </p>
          <pre tabIndex={0}>
            <code>cat /var/lib/holdfast/admin.token</code>
          </pre>
          <p>Create more tokens, for people and hypervisors, on the Access page or on the server:</p>
          <pre tabIndex={0}>
            <code>holdfast-server token create --name NAME --role restore</code>
          </pre>
        </div>
      </form>
    </main>
  );
}

function refusal(error: unknown): string {
  if (error instanceof ApiError && error.status === 401) {
    return "The token is unknown, expired or revoked. Check that you copied all of it, from hf_ to the last character.";
  }
  const { title, detail, next } = explain(error);
  return `${title}. ${detail === "" ? next : detail}`;
}
