import fc from 'fast-check';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { CloudlessError, noMeter, toNodeId } from '@cloudless/base';
import { TestBed } from '../testing/test-bed.js';
import { PendingBatches } from './pending-batches.js';
import { PlacementWriter, createContext, type PlacementPart } from './placement-writer.js';
import { Placer } from './placer.js';

const cpu = (cpuMillis: number) => ({ resources: { requests: { cpuMillis } } });

/**
 * Opens a test bed with a placer, and adds waiting replicas of the workloads `w1`, `w2` and so on.
 */
async function openWaiting(
  nodes: readonly string[],
  replicasOfWorkloads: readonly number[],
  cpuMillis: number,
): Promise<{ readonly bed: TestBed; readonly sizes: readonly number[] }> {
  const bed = await TestBed.open({ nodes });
  for (const [index, replicas] of replicasOfWorkloads.entries()) {
    const uid = `w${index + 1}`;
    await bed.createWorkload({ replicas, ...cpu(cpuMillis) }, uid);
    await bed.addReplicas(replicas, (number) => ({
      uid,
      id: `${uid}-${number + 1}`,
      sequence: BigInt(number + 1),
      nodeId: '',
      phase: Phase.PENDING,
      ready: false,
      containerId: '',
      reason: 'waits for a node',
    }));
  }
  return { bed, sizes: bed.recordCommitSizes() };
}

const listAll = (bed: TestBed) => [...bed.state.view().replicas()].map(({ value }) => value);
const countPlaced = (bed: TestBed): number =>
  listAll(bed).filter(({ nodeId }) => nodeId !== '').length;

function required<Value>(value: Value | undefined, what: string): Value {
  if (value === undefined) throw new Error(`${what} is missing`);
  return value;
}

describe('commits of placements', () => {
  it('hold replicas of several workloads', async () => {
    const { bed, sizes } = await openWaiting(['node-1', 'node-2'], Array(60).fill(1), 10);
    bed.use(new Placer(bed));
    await bed.advance();
    expect(countPlaced(bed)).toBe(60);
    // Each replica and its event is a write; 45 replicas fit into a commit.
    expect(sizes).toEqual([90, 30]);
    expect(bed.events('ReplicasPlaced')).toHaveLength(60);
    await bed.close();
  });

  it('refuse a decision whose node has changed, also after another decision for that node', async () => {
    const { bed } = await openWaiting(['node-1'], [1, 1], 10);
    const placements = noMeter.counter({ name: 'x', help: '', labels: ['result'] });
    const pending = new PendingBatches(() => bed.state.view());
    const writer = new PlacementWriter({ ...bed, pending, placements }, false);
    pending.beginRound();
    const decide = (): PlacementPart => {
      const view = bed.state.view();
      const batch = required(pending.next(), 'a batch');
      const [replica] = batch.listFirst().flatMap((id) => view.replica(id) ?? []);
      const decision = {
        decided: [
          { replica: required(replica, 'a replica'), outcome: { nodeId: 'node-1', score: 1 } },
        ],
        isAtomic: false,
      };
      const workload = required(view.workload(batch.uid), 'a workload').value;
      const template = required(view.version(batch.uid, 1)?.template, 'a template');
      pending.setAside(batch);
      return {
        context: createContext(view, workload, decision),
        ...{ batch, template, changes: decision.decided },
      };
    };
    writer.add(decide());
    await bed.changeNode('node-1', { cordoned: true });
    writer.add(decide());
    await writer.finish();
    expect(writer.state).toBe('conflict');
    expect(bed.state.view().replica('w1-1')?.value.nodeId).toBe('');
    await bed.close();
  });

  it('are in progress at the same time, each with what the earlier ones reserve', async () => {
    const nodes = Array.from({ length: 8 }, (_, index) => `node-${index + 1}`);
    const { bed } = await openWaiting(nodes, [800], 40);
    const gates: (() => void)[] = [];
    const commit = bed.state.commit.bind(bed.state);
    bed.state.commit = async (transaction) => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return commit(transaction);
    };
    const placer = bed.use(new Placer(bed));
    await bed.advance();
    expect(gates).toHaveLength(8);
    expect(placer.isPlacing).toBe(true);
    while (gates.length > 0) {
      for (const open of gates.splice(0)) open();
      await bed.advance();
    }
    // 4 CPUs on each of eight nodes.
    expect(countPlaced(bed)).toBe(800);
    for (const id of nodes)
      expect(bed.cluster.usage(toNodeId(id))?.allocated.cpuMillis).toBe(4_000);
    expect(placer.isPlacing).toBe(false);
    await bed.close();
  });

  it('keep the conflict of one workload from the others in the next round', async () => {
    const { bed, sizes } = await openWaiting(['node-1'], [1, 1, 1, 1], 10);
    const commit = bed.state.commit.bind(bed.state);
    let conflicts = 0;
    bed.state.commit = async (transaction) => {
      const isOfTwo = transaction.toCompares().some(({ key }) => key.startsWith('/replica/w2/'));
      if (isOfTwo && (conflicts += 1) <= 3)
        await bed.changeReplica('w2-1', { reason: `changed ${conflicts} times` });
      return commit(transaction);
    };
    bed.use(new Placer(bed));
    await bed.advance();
    expect(conflicts).toBe(4);
    expect(countPlaced(bed)).toBe(4);
    // All four together; then the first alone, and the second again and again.
    expect(sizes[0]).toBe(8);
    expect(Math.max(...sizes.slice(1, 3))).toBe(2);
    await bed.close();
  });

  it('never overfill a node and lose no replica, however commits end', async () => {
    const arbEnd = fc.constantFrom(
      ...(['ok', 'conflict', 'changed', 'unavailable', 'slow', 'answer lost', 'late'] as const),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 4 }),
        fc.array(arbEnd, { maxLength: 12 }),
        async (workloads, ends) => {
          const { bed } = await openWaiting(['node-1', 'node-2'], workloads, 100);
          const commit = bed.state.commit.bind(bed.state);
          const waiting = [...ends];
          bed.state.commit = async (transaction) => {
            const end = waiting.shift() ?? 'ok';
            if (end === 'conflict') throw new CloudlessError('conflict', 'another was faster');
            if (end === 'unavailable') throw new CloudlessError('unavailable', 'no store');
            if (end === 'slow')
              await new Promise<void>((resolve) => bed.clock.setTimer(50, resolve));
            const [first] = listAll(bed).filter(({ nodeId }) => nodeId === '');
            if (end === 'changed' && first !== undefined)
              await bed.changeReplica(first.id, { reason: 'changed meanwhile' });
            if (end === 'answer lost') await commit(transaction);
            // The store commits after the caller has given up.
            if (end === 'late')
              bed.clock.setTimer(10, () => void commit(transaction).catch(() => undefined));
            if (end === 'answer lost' || end === 'late')
              throw new CloudlessError('unavailable', 'no answer');
            return commit(transaction);
          };
          const placer = bed.use(new Placer(bed));
          await bed.advance(10_000);
          const wanted = workloads.reduce((sum, count) => sum + count, 0);
          expect(countPlaced(bed)).toBe(Math.min(80, wanted));
          expect(placer.isPlacing).toBe(false);
          for (const id of ['node-1', 'node-2']) {
            const held = listAll(bed).filter(({ nodeId }) => nodeId === id).length;
            expect(held).toBeLessThanOrEqual(40);
            expect(bed.cluster.usage(toNodeId(id))?.replicas).toBe(held);
          }
          await bed.close();
        },
      ),
      { numRuns: 25 },
    );
  });
});
