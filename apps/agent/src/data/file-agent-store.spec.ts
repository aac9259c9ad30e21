import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { StoredReplica } from '@cloudless/agent-core';
import { FileAgentStore } from './file-agent-store.js';

const replica: StoredReplica = {
  replicaId: '0123456789abcdef-1',
  workloadUid: '0123456789abcdef',
  start: Uint8Array.of(0, 255, 10),
  heldRevision: 9_007_199_254_740_993n,
  bootId: 'b',
  progress: {
    phase: 'running',
    reason: '',
    restarts: 2,
    failures: 1,
    lastExitCode: -1,
    lastEndReason: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed (exit code 0)',
    lastLines: ['Error: no such table', '  at query'],
    killing: 'liveness probe: HTTP 500 from /livez, 3 of 3 failed',
    containerId: 'c',
    containerEnded: false,
    ready: true,
  },
};
const identity = {
  nodeId: 'n',
  instanceId: 'i',
  clusterId: 'c',
  highestEpoch: 7n,
  coordinators: [{ id: 'one', address: 'https://10.0.0.1:8080' }],
};

describe('FileAgentStore', () => {
  let directory: string;
  beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), 'agent-store-'))));
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('loads the identity and the replicas that another instance saved', async () => {
    const store = new FileAgentStore(directory);
    expect(await store.load()).toEqual({ replicas: [] });
    await store.saveIdentity(identity);
    await store.saveReplica(replica);
    await store.saveReplica({ ...replica, end: Uint8Array.of(1) });
    await store.saveReplica({ ...replica, replicaId: '../x' });
    expect(await new FileAgentStore(directory).load()).toEqual({
      identity,
      replicas: [
        { ...replica, replicaId: '../x' },
        { ...replica, end: Uint8Array.of(1) },
      ],
    });
    expect(await readdir(directory)).toEqual(['identity.json', 'replicas', 'reserve']);
  });

  it('loads the failed starts of a replica; undefined when an earlier version has saved it', async () => {
    const store = new FileAgentStore(directory);
    await store.load();
    await store.saveReplica({ ...replica, progress: { ...replica.progress, failedStarts: 1 } });
    await store.saveReplica({ ...replica, replicaId: 'earlier' });
    const { replicas } = await new FileAgentStore(directory).load();
    const loaded = new Map(replicas.map(({ replicaId, progress }) => [replicaId, progress]));
    expect(loaded.get(replica.replicaId)).toMatchObject({ restarts: 2, failedStarts: 1 });
    expect(loaded.get('earlier')).not.toHaveProperty('failedStarts');
  });

  it('removes a replica, and ignores an unknown id', async () => {
    const store = new FileAgentStore(directory);
    await store.load();
    await store.saveReplica(replica);
    await store.removeReplica(replica.replicaId);
    await store.removeReplica('nobody-1');
    expect(await store.load()).toEqual({ replicas: [] });
  });

  it('keeps the old value when a write was interrupted', async () => {
    const store = new FileAgentStore(directory);
    await store.load();
    await store.saveReplica(replica);
    const [name] = await readdir(join(directory, 'replicas'));
    await writeFile(join(directory, 'replicas', `${name}.draft`), '{"for');
    expect(await store.load()).toEqual({ replicas: [replica] });
    expect(await readdir(join(directory, 'replicas'))).toEqual([name]);
  });

  it.each([
    ['cut off', (text: string) => text.slice(0, 40)],
    ['of another format', (text: string) => text.replace('"format":1', '"format":2')],
    ['of an unknown phase', (text: string) => text.replace('"running"', '"dancing"')],
    ['without its revision', (text: string) => text.replace('heldRevision', 'x')],
  ])('rejects a file that is %s with an error that names the file', async (_name, damage) => {
    const store = new FileAgentStore(directory);
    await store.load();
    await store.saveReplica(replica);
    const path = join(directory, 'replicas', `${replica.replicaId}.json`);
    await writeFile(path, damage(await readFile(path, 'utf8')));
    await expect(store.load()).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringContaining(path),
    });
  });

  it('creates files that only their owner can read', async () => {
    const store = new FileAgentStore(directory);
    await store.saveIdentity(identity);
    expect((await stat(join(directory, 'identity.json'))).mode & 0o077).toBe(0);
  });
});
