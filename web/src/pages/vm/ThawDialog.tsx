/** How fast to thaw, for how many days, and what that costs. */

import { useState, type SubmitEvent } from "react";

import type { Backup, ThawLine, ThawOffer } from "../../api/schema";
import { useStartThaw, useThaw } from "../../api/thaw";
import { Dialog, FormActions } from "../../components/Dialog";
import { Async, ErrorNote } from "../../components/Feedback";
import { SimpleTable, type SimpleColumn } from "../../components/SimpleTable";
import { bytes } from "../../format/bytes";
import { dollars, plural } from "../../format/numbers";
import { minute } from "../../format/time";

/** As the server takes them. */
const DAYS_MAX = 365;

const LINES: SimpleColumn<ThawLine>[] = [
  { id: "what", header: "", render: (line) => line.what },
  { id: "cost", term: "thaw_cost", kind: "dollars", value: (line) => line.cost },
  { id: "extra", header: "", render: (line) => (line.extra ? "not in the sum" : "") },
];

export function ThawDialog({ point, onClose }: { point: Backup; onClose: () => void }) {
  const [days, setDays] = useState("");
  // Which of them the server was asked about: each answer is a walk over all that the restore point needs, so not each key.
  const [asked, setAsked] = useState("");
  const [speed, setSpeed] = useState("");
  const wanted = Math.trunc(Number(days));
  const isValid = days === "" || (wanted >= 1 && wanted <= DAYS_MAX);
  const thaw = useThaw(point.id, Math.trunc(Number(asked)));
  const start = useStartThaw(point.id);
  const offers = thaw.data?.offers ?? [];
  const chosen = offers.find((offer) => offer.speed === speed) ?? offers[0];
  const isAsked = days === asked;
  const ask = () => {
    if (isValid) setAsked(days);
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isAsked) return ask();
    // What is shown meanwhile is the price of other days.
    if (chosen !== undefined && !thaw.isPlaceholderData) start.mutate({ speed: chosen.speed, ...(days === "" ? {} : { days: wanted }) }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Thaw the restore point of ${minute(point.finished)}`} pending={start.isPending} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <Async query={thaw} lines={5} height={220}>
          {(data) => (
            <>
              <p>
                Of VM {point.vm} in the namespace {point.namespace}: {bytes(data.bytes)} in {plural(data.objects, "object")} are brought back from the archive. Then the restore point can be restored for{" "}
                {plural(data.days, "day")}.
              </p>
              {data.offers.length === 0 && <p>Nothing has to be thawed, or the prices of its storage class are not known: see the setting s3_prices.</p>}
              <fieldset className="field roles">
                <legend>How fast</legend>
                {data.offers.map((offer) => (
                  <label key={offer.speed} className="role">
                    <input type="radio" name="speed" value={offer.speed} checked={offer === chosen} onChange={() => setSpeed(offer.speed)} />
                    <span>
                      <strong>{within(offer)}</strong>
                      <span className="muted">
                        about {dollars(offer.cost)} ({offer.speed})
                      </span>
                    </span>
                  </label>
                ))}
              </fieldset>
              {chosen !== undefined && <SimpleTable caption="What it costs" columns={LINES} rows={chosen.lines} rowKey={(line) => line.what} />}
              <p className="muted">
                By the prices of {data.region} as of {data.as_of}, without taxes and contracts. It cannot be taken back: what was asked for comes, and is paid
                for.
              </p>
            </>
          )}
        </Async>
        <label className="field">
          <span>Days for which it can be read</span>
          <input
            name="days"
            type="number"
            min={1}
            max={DAYS_MAX}
            value={days}
            placeholder={thaw.data === undefined ? "" : String(thaw.data.days)}
            onChange={(event) => setDays(event.target.value)}
            onBlur={ask}
          />
        </label>
        {start.error !== null && <ErrorNote error={start.error} />}
        <FormActions
          word={chosen === undefined ? "Thaw" : isAsked ? `Thaw for about ${dollars(chosen.cost)}` : "Show the price"}
          busy="Starting…"
          pending={start.isPending}
          disabled={chosen === undefined || !isValid || thaw.isPlaceholderData}
          onClose={onClose}
        />
      </form>
    </Dialog>
  );
}

const within = ({ hours }: ThawOffer): string => `Within ${plural(hours, "hour")}`;
