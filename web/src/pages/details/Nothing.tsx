/** No rows: either the filter leaves none, or there has been no backup yet. */

import { FirstBackup } from "../../components/FirstBackup";
import { Empty } from "../../components/Feedback";
import { isFiltered, UNFILTERED, type View } from "./view";

export function Nothing({ view, onChange }: { view: View; onChange: (changes: Partial<View>) => void }) {
  if (!isFiltered(view)) return <FirstBackup />;
  return (
    <Empty title="No run matches this filter">
      <p>Widen the time or take a filter away.</p>
      <button type="button" className="button" onClick={() => onChange(UNFILTERED)}>
        Reset filter
      </button>
    </Empty>
  );
}
