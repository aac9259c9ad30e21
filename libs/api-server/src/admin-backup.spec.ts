import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { CloudlessError, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { AdminHandlers } from './admin-handlers.js';
import type { AuditEntry } from './audit/audit-log.js';
import type { ApiServerDeps } from './ports.js';
import { ApiTestBed } from './testing/api-test-bed.js';

const DISK_FULL =
  'disk full: no space left for /data/store.mdb, nothing was written; free some space on its file system, and writes continue automatically';

/** A coordinator whose store refuses every write once `fill` was called. */
async function openBed() {
  const clock = new ManualClock();
  const store = createMemoryStateStore({ clock });
  const write = store.txn.bind(store);
  let isFull = false;
  store.txn = (compares, operations) =>
    isFull
      ? Promise.reject(new CloudlessError('STORE_FULL', DISK_FULL))
      : write(compares, operations);
  const bed = await ApiTestBed.open({ clock, store });
  return { bed, fill: () => (isFull = true) };
}

describe('a coordinator whose disk is full', () => {
  it('streams the whole backup, with a warning in place of the audit record', async () => {
    const { bed, fill } = await openBed();
    await bed.putNode('node-1');
    const read = async (): Promise<number> => {
      let bytes = 0;
      for await (const { data } of bed.admin.backup({})) bytes += data.byteLength;
      return bytes;
    };
    fill();
    expect(await read()).toBeGreaterThan(0);
    expect(bed.auditRecords).toEqual([]);
    await bed.close({ problems: ['audit record not written: the state store is full'] });
  });

  it('refuses exec, and says that the audit record is missing and what to do', async () => {
    const { bed, fill } = await openBed();
    await bed.putReplica('w-0', { containerId: 'c'.repeat(64), phase: Phase.RUNNING });
    fill();
    const start = { case: 'start' as const, value: { replicaId: 'w-0', command: ['id'] } };
    const requests = (async function* () {
      yield { request: start };
    })();
    await expect(bed.client.exec(requests)[Symbol.asyncIterator]().next()).rejects.toThrow(
      `[resource_exhausted] Exec is refused: nobody may make this call without an audit record, and the state store has no space for the record: ${DISK_FULL}`,
    );
    await bed.close({ problems: ['refused call not recorded'] });
  });
});

describe('the audit record of a backup', () => {
  /** Reads a backup whose audit record fails with `failure`, and returns the lines of the log. */
  async function backUp(failure: Error): Promise<readonly (readonly [string, object])[]> {
    const lines: [string, object][] = [];
    const state = {
      async *backup() {
        yield new Uint8Array(1);
        return { revision: 1n, entries: 1, bytes: 1, sha256: '' };
      },
    };
    const handlers = new AdminHandlers({
      state: state as unknown as ClusterState,
      ...{ clock: new ManualClock(), coordinatorId: 'c1' },
      log: { ...silentLog, warn: (message, fields = {}) => void lines.push([message, fields]) },
      whatIf: {} as ApiServerDeps['whatIf'],
    });
    const entry = {
      facts: {
        rpc: 'cloudless.api.AdminService/Backup',
        ...{ principal: 'user/ada', credentialId: 'c7', address: '10.0.0.3', traceId: 't1' },
      },
      recordStart: () => Promise.reject(failure),
    };
    const context = { signal: new AbortController().signal };
    for await (const chunk of handlers.backup(entry as unknown as AuditEntry, context as never))
      void chunk;
    return lines;
  }

  it('is a warning that names user, credential, address and call when the store is full', async () => {
    expect(await backUp(new CloudlessError('STORE_FULL', DISK_FULL))).toEqual([
      [
        'audit record not written: the state store is full',
        expect.objectContaining({
          rpc: 'cloudless.api.AdminService/Backup',
          ...{ principal: 'user/ada', credentialId: 'c7', address: '10.0.0.3', traceId: 't1' },
          error: DISK_FULL,
        }),
      ],
    ]);
  });

  it('must be stored when the store fails for another reason: the backup is refused', async () => {
    const failure = new CloudlessError('unavailable', 'the store does not answer');
    await expect(backUp(failure)).rejects.toBe(failure);
  });
});
