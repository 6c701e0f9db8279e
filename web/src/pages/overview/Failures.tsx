/** The latest runs that ended without a restore point. */

import { Link } from "wouter";

import { useDetails } from "../../api/queries";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { link } from "../../components/location";
import { StatusBadge } from "../../components/Status";
import { relative, second } from "../../format/time";

const NOT_DONE = "failed,aborted,expired";

export function Failures({ namespace }: { namespace: string }) {
  const query = useDetails({ namespace, status: NOT_DONE, sort: "-finished", limit: 5 });
  return (
    <Card title="Latest failures" actions={<Link href={link("/details", { namespace, status: NOT_DONE })}>All</Link>}>
      <Async query={query} height={120}>
        {(page) =>
          page.items.length === 0 ? (
            <p className="all-well">
              <Icon name="check" /> No run has failed.
            </p>
          ) : (
            <ul className="events">
              {page.items.map((row) => (
                <li key={row.id}>
                  <StatusBadge status={row.status} />
                  <div>
                    <Link href={link("/details", { namespace, status: NOT_DONE, row: row.id })}>
                      {row.vm} · {row.disk}
                    </Link>
                    <p className="clamp">{row.error || "No reason was recorded."}</p>
                  </div>
                  <span className="muted nowrap" data-term="finished" data-exact={second(row.finished)}>
                    {relative(row.finished)}
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Async>
    </Card>
  );
}
