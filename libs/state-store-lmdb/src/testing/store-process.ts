import { CloudlessError, type Clock } from '@cloudless/base';
import { openLmdbStateStore } from '../index.js';

/**
 * Program of a process that uses a store, for specs that kill the process. Arguments: task and data
 * directory.
 * - `hold`: opens the store, prints `open`, and keeps the store open until the process is killed.
 * - `write`: writes without end from several writers, and prints `ack <key> <value> <revision>` for
 *   each acknowledgement.
 * - `write-unsynced`: like `write`, with a store that acknowledges before the flush.
 * - `fill`: writes until the disk is full; prints `ack <key> <revision>` for each acknowledgement,
 *   then `full <kind>` and `readable <count>`; deletes five keys, writes again and prints `revision
 *   <revision>`. If the store cannot be opened, the process prints `refused <kind> <message>`.
 */
const [task = '', directory = ''] = process.argv.slice(2);

const clock: Clock = {
  now: () => performance.now(),
  wallTime: () => Date.now(),
  setTimer: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};
/** Concurrent writers of the tasks `write` and `write-unsynced`. */
const WRITER_COUNT = 20;
const FILL_VALUE_BYTES = 20_000;

function printLine(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function write(sync: boolean): Promise<void> {
  const store = await openLmdbStateStore({ directory, clock, sync });
  const writer = async (name: string): Promise<void> => {
    let is: bigint | 'absent' = 'absent';
    for (let round = 0; ; round += 1) {
      const value = `${name}-${round}`;
      const { revision } = await store.txn(
        [{ key: name, is }],
        [{ put: name, value: Buffer.from(value) }],
      );
      is = revision;
      printLine(`ack ${name} ${value} ${revision}`);
    }
  };
  await Promise.all(Array.from({ length: WRITER_COUNT }, (_, index) => writer(`writer-${index}`)));
}

async function fill(): Promise<void> {
  const store = await openLmdbStateStore({ directory, clock, historyLimit: 1 });
  const written: string[] = [];
  try {
    for (;;) {
      const key = `key-${written.length}`;
      const { revision } = await store.txn(
        [],
        [{ put: key, value: Buffer.alloc(FILL_VALUE_BYTES) }],
      );
      written.push(key);
      printLine(`ack ${key} ${revision}`);
    }
  } catch (reason) {
    printLine(`full ${reason instanceof CloudlessError ? reason.kind : String(reason)}`);
  }
  printLine(`readable ${(await store.range({ prefix: 'key-' })).entries.length}`);
  for (const key of written.slice(0, 5)) await store.txn([], [{ delete: key }]);
  await store.txn([], [{ put: 'after', value: Buffer.alloc(FILL_VALUE_BYTES) }]);
  printLine(`revision ${await store.revision()}`);
  await store.close();
}

async function hold(): Promise<void> {
  await openLmdbStateStore({ directory, clock });
  printLine('open');
  setInterval(() => undefined, 60_000);
}

const tasks: Record<string, () => Promise<void>> = {
  hold,
  write: () => write(true),
  'write-unsynced': () => write(false),
  fill,
};
try {
  await tasks[task]?.();
} catch (reason) {
  printLine(
    `refused ${reason instanceof CloudlessError ? `${reason.kind} ${reason.message}` : String(reason)}`,
  );
}
