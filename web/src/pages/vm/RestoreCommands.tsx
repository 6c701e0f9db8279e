/** The commands that restore the disks of a restore point; the first few are shown at once. */

import { useState } from "react";

import { Command } from "../../components/Command";
import { plural } from "../../format/numbers";

const FEW = 4;

export function RestoreCommands({ commands }: { commands: readonly { disk: string; command: string }[] }) {
  const [all, setAll] = useState(false);
  const rest = commands.length - FEW;
  return (
    <div className="commands">
      {(all ? commands : commands.slice(0, FEW)).map((each) => (
        <Command key={each.disk} text={each.command} label={`Restore disk ${each.disk}`} />
      ))}
      {rest > 0 && !all && (
        <button type="button" className="button button-small" onClick={() => setAll(true)}>
          Show {plural(rest, "more disk")}
        </button>
      )}
    </div>
  );
}
