import type { ReplicaRecord } from '@cloudless/api/store';
import { TestBed } from '../testing/test-bed.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1'] });
  await bed.createWorkload({ replicas: 1 });
  await bed.addReplicas(1, () => ({ nodeId: 'node-1', ready: true, containerId: 'c1' }));
});

afterEach(() => bed.close());

const replica = (): ReplicaRecord => bed.replicas()[0]!;
const readyForMs = (): number | undefined => bed.readiness.readyForMs(replica());

describe('ReadinessTracker', () => {
  it('measures how long a replica has been ready', async () => {
    await bed.advance(1_000);
    expect(readyForMs()).toBe(1_000);
    expect(bed.readiness.lastReadyForMs(replica().id)).toBe(0);
  });

  it('starts again with another container, also when the replica is ready all the time', async () => {
    await bed.advance(1_000);
    await bed.changeReplica(replica().id, { containerId: 'c2' });
    expect(readyForMs()).toBe(0);
  });

  it('keeps the time when another field of the replica changes', async () => {
    await bed.advance(1_000);
    await bed.changeReplica(replica().id, { reason: 'checked' });
    expect(readyForMs()).toBe(1_000);
  });

  it('returns undefined for an unready replica, and how long it was ready before', async () => {
    await bed.advance(1_000);
    await bed.changeReplica(replica().id, { ready: false });
    await bed.advance(500);
    expect(readyForMs()).toBeUndefined();
    expect(bed.readiness.lastReadyForMs(replica().id)).toBe(1_000);
  });

  it('freezes the readiness of one moment, whatever changes later', async () => {
    const alive = new Set(['node-1']);
    await bed.advance(1_000);
    const before = replica();
    const frozen = bed.readiness.freeze((nodeId) => alive.has(nodeId));
    const changes = [{ containerId: 'c2' }, { ready: false }, { ready: true }];
    for (const change of changes) {
      await bed.changeReplica(before.id, change);
      await bed.advance(100);
      expect(frozen.readyForMs(before)).toBe(1_000);
    }
    expect(readyForMs()).toBe(100);
    alive.clear();
    expect(frozen.readyForMs(before)).toBeUndefined();
    frozen.close();
  });

  it('freezes that a replica is not ready, when the replica becomes ready later', async () => {
    await bed.changeReplica(replica().id, { ready: false });
    const frozen = bed.readiness.freeze(() => true);
    await bed.changeReplica(replica().id, { ready: true });
    expect(readyForMs()).toBe(0);
    expect(frozen.readyForMs(replica())).toBeUndefined();
    frozen.close();
  });

  it.each([
    { name: 'was lost with its node', change: { lost: true, desiredRunning: false, ready: false } },
    { name: 'was unready and is ordered to stop', change: { desiredRunning: false } },
  ])('keeps no time of a replica that $name', async ({ change }) => {
    await bed.advance(1_000);
    if (change.lost !== true) await bed.changeReplica(replica().id, { ready: false });
    await bed.changeReplica(replica().id, change);
    expect(bed.readiness.lastReadyForMs(replica().id)).toBe(0);
  });

  it.each([
    {
      name: 'a stopping replica',
      change: () => bed.changeReplica('web-1', { desiredRunning: false }),
    },
    {
      name: 'a replica on a silent node',
      change: () => (bed.silence('node-1'), bed.advance(4_000)),
    },
  ])('returns undefined for $name', async ({ change }) => {
    await change();
    expect(readyForMs()).toBeUndefined();
  });
});
