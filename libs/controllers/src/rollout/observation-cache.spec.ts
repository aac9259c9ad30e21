import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { toReplicaId } from '@cloudless/base';
import type { RolloutReplica } from '@cloudless/rollout';
import { ChangeLog } from '../common/change-log.js';
import { ObservationCache } from './observation-cache.js';

const NODES = ['n0', 'n1', 'n2'];

function aReplica(
  sequence: number,
  fields: { version?: number; reason?: string } = {},
): ReplicaRecord {
  const nodeId = NODES[sequence % NODES.length] ?? '';
  const id = `w-${sequence}`;
  return create(ReplicaRecordSchema, {
    id,
    uid: 'w',
    sequence: BigInt(sequence),
    nodeId,
    ...fields,
  });
}

/** Observations that depend on the record, on the liveness of its node, and on the node's record. */
class TestWorld {
  readonly liveness = new ChangeLog();
  readonly cache = new ObservationCache(this.liveness);
  readonly dead = new Set<string>();
  readonly draining = new Set<string>();
  observed = 0;

  look({ id, version, nodeId, sequence }: ReplicaRecord): RolloutReplica {
    return {
      ...{ id: toReplicaId(id), version, desired: 'running', lost: false },
      available: !this.dead.has(nodeId),
      draining: this.draining.has(nodeId),
      createdSequence: Number(sequence),
    };
  }

  observe(
    replicas: readonly ReplicaRecord[],
    uid = 'w',
    minReadyMs = 0,
  ): readonly RolloutReplica[] {
    const changing = new Set<RolloutReplica>();
    const observe = (replica: ReplicaRecord): RolloutReplica => {
      this.observed += 1;
      const observed = this.look(replica);
      if (replica.reason !== '') changing.add(observed);
      return observed;
    };
    return this.cache.observe(uid, minReadyMs, replicas, { observe, changing });
  }
}

type Change =
  | { readonly kind: 'kill' | 'drain' | 'update' | 'remove'; readonly index: number }
  | { readonly kind: 'create' | 'pass' };

const arbChange: fc.Arbitrary<Change> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('kill' as const, 'drain' as const, 'update' as const, 'remove' as const),
    index: fc.nat({ max: 20 }),
  }),
  fc.record({ kind: fc.constantFrom('create' as const, 'pass' as const) }),
);

describe('ObservationCache', () => {
  it('returns what observing every replica would return, whatever changes between passes', () => {
    fc.assert(
      fc.property(fc.array(arbChange, { maxLength: 60 }), (changes) => {
        const world = new TestWorld();
        let replicas: readonly ReplicaRecord[] = [];
        let created = 0;
        for (const change of changes) {
          const index = 'index' in change ? change.index % Math.max(1, replicas.length) : 0;
          const nodeId = NODES[index % NODES.length] ?? '';
          if (change.kind === 'create') replicas = [...replicas, aReplica(created++)];
          else if (change.kind === 'remove') replicas = replicas.filter((_, at) => at !== index);
          else if (change.kind === 'update')
            replicas = replicas.map((replica, at) =>
              at === index
                ? aReplica(Number(replica.sequence), { version: replica.version + 1 })
                : replica,
            );
          else if (change.kind === 'kill') {
            world.dead[world.dead.has(nodeId) ? 'delete' : 'add'](nodeId);
            world.liveness.record(nodeId);
          } else if (change.kind === 'drain') {
            world.draining[world.draining.has(nodeId) ? 'delete' : 'add'](nodeId);
            world.cache.recordNodeChange(nodeId);
          } else
            expect(world.observe(replicas)).toEqual(replicas.map((replica) => world.look(replica)));
        }
        expect(world.observe(replicas)).toEqual(replicas.map((replica) => world.look(replica)));
      }),
    );
  });

  it('observes only the replicas that have changed, and those that time may change', () => {
    const world = new TestWorld();
    const replicas = [aReplica(0), aReplica(1), aReplica(2, { reason: 'waits' }), aReplica(3)];
    world.observe(replicas);
    world.observed = 0;
    world.observe(replicas.slice(1));
    expect(world.observed).toBe(1);
    world.liveness.record('n0');
    world.observe(replicas.slice(1));
    expect(world.observed).toBe(3);
  });

  it('observes all replicas again after a change of the time until they are available', () => {
    const world = new TestWorld();
    const replicas = [aReplica(0), aReplica(1)];
    world.observe(replicas);
    world.observe(replicas, 'w', 1_000);
    expect(world.observed).toBe(4);
  });

  it('keeps a bounded number of observations, and does not replace them by those of other workloads', () => {
    const world = new TestWorld();
    const replicas = Array.from({ length: 30_000 }, (_, sequence) => aReplica(sequence));
    for (const uid of ['a', 'b', 'c']) world.observe(replicas, uid);
    expect(world.cache.size).toBe(60_000);
    world.observed = 0;
    for (const uid of ['a', 'b']) world.observe(replicas, uid);
    expect(world.observed).toBe(0);
    world.observe(replicas, 'c');
    expect(world.observed).toBe(30_000);
    world.cache.forget('a');
    world.cache.forget('b');
    expect(world.cache.size).toBe(0);
  });

  it('replaces the observations of a workload without passes by those of an active one', () => {
    const world = new TestWorld();
    const replicas = Array.from({ length: 40_000 }, (_, sequence) => aReplica(sequence));
    world.observe(replicas, 'waiting');
    for (let pass = 0; pass < 7; pass += 1) world.observe(replicas, 'active');
    world.observed = 0;
    world.observe(replicas, 'active');
    expect(world.observed).toBe(0);
    expect(world.cache.size).toBe(40_000);
  });
});

describe('ChangeLog', () => {
  it('never calls a changed key unchanged, also after more changes than it remembers', () => {
    const log = new ChangeLog();
    log.record('a');
    const before = log.count;
    expect(log.isUnchangedSince('a', before)).toBe(true);
    log.record('b');
    expect([log.isUnchangedSince('a', before), log.isUnchangedSince('b', before)]).toEqual([
      true,
      false,
    ]);
    for (let key = 0; key <= 65_536; key += 1) log.record(`node-${key}`);
    expect(log.isUnchangedSince('b', before)).toBe(false);
    expect(log.isUnchangedSince('a', log.count)).toBe(true);
  });
});
