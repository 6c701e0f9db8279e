/** No rows: either none matches the filters, or there has been no backup yet. */

import { FirstBackup } from "../../components/FirstBackup";
import { Empty } from "../../components/Feedback";
import { isFiltered, UNFILTERED, type View } from "./view";

export function Nothing({ view, onChange }: { view: View; onChange: (changes: Partial<View>) => void }) {
  if (!isFiltered(view)) return <FirstBackup />;
  return (
    <Empty title="No runs match these filters">
      <p>Choose a longer time span or remove a filter.</p>
      <button type="button" className="button" onClick={() => onChange(UNFILTERED)}>
        Reset filters
      </button>
    </Empty>
  );
}
