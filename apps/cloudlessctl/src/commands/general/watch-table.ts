import type { CliSession } from '../../call/cli-session.js';
import { GrowingTable } from '../../output/table.js';
import type { Column, Row } from '../../output/table.js';

/**
 * The table of a watch. The rows of the current state are held until the state is complete and
 * printed in the order of their keys; every later row is printed at once. A row that differs from the
 * last one of its object in the age only is left out: the coordinator sends an object again whose
 * shown state is the same, for example after a restart.
 */
export class WatchTable {
  private readonly table: GrowingTable;
  private held: { readonly key: string; readonly row: Row }[] | undefined = [];
  /** The last row of each object without its age. */
  private readonly shown = new Map<string, string>();
  private readonly ageIndex: number;

  constructor(
    private readonly session: CliSession,
    columns: readonly (Column | string)[],
  ) {
    this.ageIndex = columns.findIndex(
      (column) => (typeof column === 'string' ? column : column.header) === 'AGE',
    );
    this.table = new GrowingTable(columns, session.style, {
      wide: session.settings.output === 'wide',
    });
  }

  /** Adds a row. `key` names the object, and orders the rows of the current state. */
  async add(key: string, row: Row): Promise<void> {
    const content = row
      .filter((_, index) => index !== this.ageIndex)
      .map((cell) => (typeof cell === 'string' ? cell : cell.text))
      .join('\0');
    if (this.shown.get(key) === content) return;
    this.shown.set(key, content);
    if (this.held === undefined) await this.session.print(this.table.add(row));
    else this.held.push({ key, row });
  }

  /** Holds rows again, because the watch restarts with the current state. */
  restart(): void {
    this.held ??= [];
  }

  /** Prints the rows that are held, if any. Called when the current state is complete. */
  async flush(): Promise<void> {
    const { held } = this;
    this.held = undefined;
    if (held === undefined || held.length === 0) return;
    held.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    await this.session.print(this.table.addAll(held.map(({ row }) => row)));
  }
}
