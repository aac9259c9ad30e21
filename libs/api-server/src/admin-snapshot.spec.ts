import { ManualClock } from '@cloudless/base/testing';
import { silentLog } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { AdminHandlers } from './admin-handlers.js';

/** Handlers over a snapshot of three chunks; `open` says whether the snapshot is still open. */
function createHandlers() {
  const snapshot = { isOpen: false };
  const clock = new ManualClock();
  const handlers = new AdminHandlers({
    state: {} as ClusterState,
    log: silentLog,
    clock,
    whatIf: {
      openCurrent: () => Promise.reject(new Error('unused')) as never,
      openRevision: () => Promise.reject(new Error('unused')),
      proposeMoves: () => Promise.reject(new Error('unused')),
      encodeSnapshot: function* () {
        snapshot.isOpen = true;
        try {
          for (const byte of [1, 2, 3]) yield new Uint8Array([byte]);
        } finally {
          snapshot.isOpen = false;
        }
      },
    },
  });
  return { handlers, snapshot, clock };
}

describe('Snapshot', () => {
  it('streams all chunks, and then closes the snapshot', async () => {
    const { handlers, snapshot, clock } = createHandlers();
    const bytes: number[] = [];
    const reading = (async () => {
      const { signal } = new AbortController();
      for await (const { data } of handlers.snapshot({ signal })) bytes.push(...data);
    })();
    await clock.advance(10);
    await reading;
    expect(bytes).toEqual([1, 2, 3]);
    expect(snapshot.isOpen).toBe(false);
    expect(clock.pendingTimers).toBe(0);
  });

  it('closes the snapshot of a client that reads for more than 2 minutes, and then fails', async () => {
    const { handlers, snapshot, clock } = createHandlers();
    const chunks = handlers.snapshot({ signal: new AbortController().signal });
    await chunks.next();
    expect(snapshot.isOpen).toBe(true);
    await clock.advance(120_000);
    expect(snapshot.isOpen).toBe(false);
    const next = chunks.next();
    next.catch(() => undefined);
    await clock.advance(10);
    await expect(next).rejects.toMatchObject({ kind: 'exhausted', reason: 'SLOW_READER' });
  });

  it('closes the snapshot when the call ends early', async () => {
    const { handlers, snapshot } = createHandlers();
    const chunks = handlers.snapshot({ signal: new AbortController().signal });
    await chunks.next();
    await chunks.return(undefined);
    expect(snapshot.isOpen).toBe(false);
  });

  it('refuses a fourth snapshot at the same time, and accepts one when another has ended', async () => {
    const { handlers } = createHandlers();
    const open = () => handlers.snapshot({ signal: new AbortController().signal });
    const snapshots = [open(), open(), open()];
    for (const snapshot of snapshots) await snapshot.next();
    await expect(open().next()).rejects.toMatchObject({
      kind: 'exhausted',
      message: '3 snapshots are running already; try again when one has ended',
    });
    await snapshots[0]?.return(undefined);
    await expect(open().next()).resolves.toMatchObject({ done: false });
  });
});
