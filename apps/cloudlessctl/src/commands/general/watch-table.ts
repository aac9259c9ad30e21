import type { CliSession } from '../../call/cli-session.js';
import { GrowingTable } from '../../output/table.js';
import type { Column, Row } from '../../output/table.js';

/**
 * The table of a watch. The rows of the current state are held until the state is complete and
 * printed in the order of their keys; every later row is printed at once.
 */
export class WatchTable {
  private readonly table: GrowingTable;
  private held: { readonly key: string; readonly row: Row }[] | undefined = [];

  constructor(
    private readonly session: CliSession,
    columns: readonly (Column | string)[],
  ) {
    this.table = new GrowingTable(columns, session.style, {
      wide: session.settings.output === 'wide',
    });
  }

  /** Adds a row. `key` orders the rows of the current state. */
  async add(key: string, row: Row): Promise<void> {
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
