/** Actions on the rows: order, group, choose columns, download. */

import { Icon } from "../../components/icons";
import { Menu } from "../../components/Menu";
import { definition } from "../../format/definitions";
import type { ColumnChoice } from "./choice";
import { DETAIL_COLUMNS } from "./columns";
import { downloadDays, downloadGroups, downloadReport, downloadShown } from "./download";
import { groupLabel, GROUPS, NEWEST, WORST, type View } from "./view";

interface ToolbarProps {
  view: View;
  onChange: (changes: Partial<View>) => void;
  choice: ColumnChoice;
}

export function Toolbar({ view, onChange, choice }: ToolbarProps) {
  const sort = view.by === "" ? view.sort : view.gsort;
  const worst = sort === WORST;
  const order = (next: string) => onChange(view.by === "" ? { sort: next } : { gsort: next });
  return (
    <div className="toolbar">
      <div className="segments" role="group" aria-label="Group by">
        <button type="button" aria-pressed={view.by === ""} onClick={() => onChange({ by: "" })}>
          Rows
        </button>
        {GROUPS.map((by) => (
          <button key={by} type="button" aria-pressed={view.by === by} onClick={() => onChange({ by })}>
            By {groupLabel(by)}
          </button>
        ))}
      </div>
      <button
        type="button"
        className="button"
        aria-pressed={worst}
        data-exact="Most bytes stored first: what fills the repository"
        onClick={() => order(worst ? (view.by === "" ? NEWEST : "-finished") : WORST)}
      >
        <Icon name="down" />
        Worst first
      </button>
      <span className="toolbar-space" />
      {view.by === "" && <Columns choice={choice} />}
      <Download view={view} choice={choice} />
    </div>
  );
}

function Columns({ choice }: { choice: ColumnChoice }) {
  const all = DETAIL_COLUMNS.filter((column) => column.id !== "vm");
  return (
    <Menu label="Columns" icon="columns" name="Columns to show" align="end">
      {() => (
        <div className="columns-panel">
          <div className="columns-actions">
            <button type="button" className="button button-small" onClick={() => choice.set(Object.fromEntries(all.map(({ id }) => [id, true])))}>
              All
            </button>
            <button type="button" className="button button-small" onClick={choice.reset}>
              Reset
            </button>
          </div>
          <div className="options">
            {all.map(({ id, term }) => (
              <label key={id} data-term={term}>
                <input
                  type="checkbox"
                  checked={choice.visibility[id] !== false}
                  onChange={(event) => choice.set({ [id]: event.target.checked })}
                />
                <span>{definition(term).label}</span>
                {id !== term || id === "trend" || id === "finding" ? null : <code>{id}</code>}
              </label>
            ))}
          </div>
        </div>
      )}
    </Menu>
  );
}

function Download({ view, choice }: { view: View; choice: ColumnChoice }) {
  return (
    <Menu label="Download" icon="download" name="Download" align="end">
      {(close) => (
        <ul className="links">
          {(["tsv", "csv"] as const).map((format) => (
            <li key={format}>
              {view.by === "" ? (
                <a href={downloadShown(view, choice.visibility, format)} download onClick={close}>
                  Rows as shown, {format.toUpperCase()}
                  <span>With these filters, columns and this order</span>
                </a>
              ) : (
                <a href={downloadGroups(view, format)} download onClick={close}>
                  Groups as shown, {format.toUpperCase()}
                  <span>With these filters, this grouping and order</span>
                </a>
              )}
            </li>
          ))}
          <li>
            <a href={downloadDays(view, "csv")} download onClick={close}>
              Days and weeks, CSV
              <span>With these filters: the sums of each day and week</span>
            </a>
          </li>
          <li>
            <a href={downloadReport(view, "tsv")} download onClick={close}>
              Full report, TSV
              <span>
                With these filters and all columns, as <code>holdfast report</code> prints it
              </span>
            </a>
          </li>
        </ul>
      )}
    </Menu>
  );
}
