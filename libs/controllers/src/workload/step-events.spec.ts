import { ReplicaStatus_Phase as Phase, Rollout_Strategy as Strategy } from '@cloudless/api';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
  bed.use(new WorkloadReconciler(bed));
});

afterEach(() => bed.close());

const messagesOf = (reason: string) => bed.events(reason).map(({ message }) => message);

describe('events about created and stopped replicas', () => {
  it('name the version that a paused rollout creates at a scale-up', async () => {
    await bed.createWorkload({ replicas: 3 });
    await bed.advance();
    await bed.runAll();
    await bed.advance(15_000);
    await bed.changeControl({ pausedVersion: 2 });
    await bed.updateWorkload({ replicas: 5, command: ['new'] });
    await bed.advance();
    expect(messagesOf('ReplicasCreated').at(-1)).toBe(
      '2 replicas created: version 1: 5 wanted of all versions, 3 present',
    );
  });

  it('name the limit of a blue/green rollout, and tell a scale-down from a replacement', async () => {
    const rollout = { strategy: Strategy.BLUE_GREEN, promotion: 1 };
    await bed.createWorkload({ replicas: 2, rollout });
    await bed.advance();
    await bed.runAll();
    await bed.advance(15_000);
    await bed.updateWorkload({ replicas: 2, command: ['new'], rollout });
    await bed.advance();
    expect(messagesOf('ReplicasCreated').at(-1)).toBe(
      '2 replicas created: version 2: 2 wanted, 0 present, at most 4 live',
    );
    await bed.runAll('node-2');
    await bed.advance(15_000);
    await bed.updateWorkload({ replicas: 1, command: ['new'], rollout });
    await bed.advance();
    expect(messagesOf('ReplicasStopping')).toEqual([
      '2 replicas ordered to stop: only 1 is wanted; 2 available replicas remain, min_available is 1',
    ]);
  });

  it('count the replicas of the earlier events of the same decision as present', async () => {
    await bed.createWorkload({ replicas: 3 });
    await bed.advance();
    await bed.runAll();
    await bed.advance(15_000);
    for (const { id } of bed.replicas().slice(1))
      await bed.changeReplica(id, { phase: Phase.FAILED, ready: false, reason: 'exit code 1' });
    await bed.advance();
    expect(messagesOf('ReplicasCreated').slice(1)).toEqual([
      '1 replica created: version 1: 3 wanted, 1 present',
      '1 replica created: version 1: 3 wanted, 2 present',
    ]);
  });
});
