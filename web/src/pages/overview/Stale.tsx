/** VMs without a recent restore point. */

import { Link } from "wouter";

import { useVms } from "../../api/queries";
import { Card } from "../../components/Card";
import { Async } from "../../components/Feedback";
import { Icon } from "../../components/icons";
import { link, vmPath } from "../../components/location";
import { TermLabel } from "../../components/Value";
import { relative, second } from "../../format/time";

export function Stale({ namespace }: { namespace: string }) {
  const query = useVms({ namespace, stale: true, sort: "latest", limit: 6 });
  return (
    <Card
      title="Without a recent restore point"
      actions={<Link href={link("/vms", { namespace, stale: "true" })}>All</Link>}
      hint={
        <>
          VMs whose latest complete restore point is <TermLabel term="stale">older than 26 hours</TermLabel>.
        </>
      }
    >
      <Async query={query} height={120}>
        {(page) =>
          page.items.length === 0 ? (
            <p className="all-well">
              <Icon name="check" /> Every VM has a recent restore point.
            </p>
          ) : (
            <ul className="events">
              {page.items.map((vm) => (
                <li key={`${vm.namespace}/${vm.vm}`}>
                  <span className="badge badge-warn">
                    <Icon name="clock" />
                    {vm.latest === null ? "never" : vm.latest.missing_disks.length > 0 ? "partial" : "stale"}
                  </span>
                  <div>
                    <Link href={vmPath(vm.namespace, vm.vm)}>{vm.vm}</Link>
                    {vm.last_error !== null && <p className="clamp">{vm.last_error}</p>}
                  </div>
                  <span className="muted nowrap" data-term="latest" data-exact={second(vm.latest?.finished)}>
                    {vm.latest === null ? "no restore point" : relative(vm.latest.finished)}
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
