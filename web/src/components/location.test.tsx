import { act, render, screen } from "@testing-library/react";
import { Link, Route, Switch } from "wouter";
import { usePathname } from "wouter/use-browser-location";
import { beforeEach, describe, expect, it } from "vitest";

import { fill, url } from "../api/client";
import { link, useNamespace, useParams, vmOf, vmPath } from "./location";

/** Pieces in which a name can be mistaken for something else once it is decoded, or not, too often. */
const PIECES = ["%", "%2f", "%2F", "%25", "%252f", "/", "\\", "?", "#", "&", "=", "+", " ", ",", ";", ":", "@", "$", "'", '"', "<", "..", ".", "~", "é", "名", "😀", "a", "Z", "0", "web-01"];

/** The same names each time. */
function* names(count: number): Generator<string> {
  let state = 12_345;
  const next = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return Math.floor((state / 0x8000_0000) * below);
  };
  yield* PIECES.filter((piece) => piece.trim() === piece && piece !== "." && piece !== "..");
  for (let made = 0; made < count; ) {
    const name = Array.from({ length: 1 + next(4) }, () => PIECES[next(PIECES.length)]).join("");
    // As the server takes names.
    if (name.trim() !== name || name === "." || name === "..") continue;
    made += 1;
    yield name;
  }
}

/** What the page of the address would be about. */
function Shown() {
  const [params, change] = useParams();
  const vm = vmOf(usePathname());
  const namespace = useNamespace();
  return (
    <>
      <Switch>
        <Route path="/vms/:namespace/:vm">
          <output>{JSON.stringify(vm)}</output>
        </Route>
        <Route path="/vms">
          <output>{JSON.stringify({ namespace, vm: params.get("vm") })}</output>
        </Route>
      </Switch>
      <button type="button" onClick={() => change({ day: "1" })}>
        change
      </button>
    </>
  );
}

const shown = () => JSON.parse(screen.getByRole("status").textContent ?? "") as unknown;

describe("names in addresses", () => {
  beforeEach(() => window.history.replaceState(null, "", "/"));

  it("come back as they were, in the path and in the query, also after a filter changed", () => {
    render(<Shown />);
    for (const name of names(500)) {
      const wanted = { namespace: name, vm: `${name}x` };
      act(() => window.history.pushState(null, "", vmPath(wanted.namespace, wanted.vm)));
      expect(shown()).toEqual(wanted);
      act(() => screen.getByRole("button").click());
      expect(shown()).toEqual(wanted);
      act(() => window.history.pushState(null, "", link("/vms", wanted)));
      expect(shown()).toEqual(wanted);
      act(() => screen.getByRole("button").click());
      expect(shown()).toEqual(wanted);
    }
  });

  it("follow a link as they are", () => {
    render(
      <>
        <Link href={vmPath("a/b", "c%2fd")}>go</Link>
        <Shown />
      </>,
    );
    act(() => screen.getByRole("link").click());
    expect(shown()).toEqual({ namespace: "a/b", vm: "c%2fd" });
  });

  it("are one part of an endpoint's path each, and one value of its query", () => {
    for (const name of names(500)) {
      const path = fill("/vms/{namespace}/{vm}", { namespace: name, vm: name });
      const address = new URL(`https://holdfast.test${url(path, { vm: name })}`);
      expect(address.pathname.split("/").slice(-2).map(decodeURIComponent)).toEqual([name, name]);
      expect(address.searchParams.get("vm")).toBe(name);
    }
  });
});
