import { CloudlessError } from '@cloudless/base';
import { openRecord } from './records.js';
import { HEAD_KEY } from './table-reads.js';
import type { Tables } from './tables.js';

/**
 * Reads every record once, so that a changed byte is found at the start and not when it is needed. A few seconds per GiB.
 * @throws kind `precondition` with the message that the data file is damaged.
 */
export function checkRecords(tables: Tables, file: string): void {
  try {
    const head = tables.meta.get(HEAD_KEY);
    if (head !== undefined) openRecord(head);
    for (const table of [tables.leases, tables.entries, tables.history]) {
      for (const { value } of table.getRange()) openRecord(value);
    }
  } catch (cause) {
    throw new CloudlessError(
      'precondition',
      `data file is damaged: ${file}: a record cannot be read; restore a backup, or move it away to start empty`,
      { cause },
    );
  }
}
