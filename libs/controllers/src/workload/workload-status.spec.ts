import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { TestBed, type ReplicaChanges } from '../testing/test-bed.js';
import { WorkloadPresenter } from './workload-presenter.js';

const NEXT_START = timestampFromMs(1_800_000_000_000);
/** A replica in back-off. */
const backingOff = (cause: string, changes: ReplicaChanges = {}): ReplicaChanges => ({
  ready: false,
  reason: `${cause}, restarting in 40 s`,
  lastEndReason: cause,
  nextStartAt: NEXT_START,
  ...changes,
});
const READY: ReplicaChanges = {};
const STARTING: ReplicaChanges = { ready: false, reason: 'pulling nginx' };

describe('the status of a workload with replicas in back-off', () => {
  let bed: TestBed;
  let presenter: WorkloadPresenter;

  async function open(replicas: readonly ReplicaChanges[]): Promise<void> {
    bed = await TestBed.open({ nodes: ['node-1'] });
    presenter = bed.use(new WorkloadPresenter(bed.state, bed.nodes, bed));
    await bed.createWorkload({ replicas: replicas.length });
    await bed.addReplicas(replicas.length, (index) => replicas[index] ?? {});
  }
  const present = () => presenter.present(bed.workload('web'), true).status;

  afterEach(() => bed.close());

  it.each([
    {
      name: 'names the replica that waits',
      replicas: [READY, backingOff('exit code 1')],
      reason: 'replica web-2 waits for its next start (exit code 1)',
    },
    {
      name: 'counts several that wait, before one that starts, and names the first',
      replicas: [STARTING, backingOff('exit code 1'), backingOff('exit code 1')],
      reason: '2 of 3 replicas wait for their next start (replica web-2: exit code 1)',
    },
    {
      name: 'names the first of several that wait for different causes',
      replicas: [READY, backingOff('out of memory'), backingOff('exit code 1')],
      reason: '2 of 3 replicas wait for their next start (replica web-2: out of memory)',
    },
    {
      name: 'leaves the delay out of the cause of a failed start',
      replicas: [backingOff('nginx:alpine: not found', { lastEndReason: '' })],
      reason: 'replica web-1 waits for its next start (nginx:alpine: not found)',
    },
    {
      name: 'says that a replica waits although its agent gives no cause',
      replicas: [backingOff('', { reason: '' })],
      reason: 'replica web-1 waits for its next start',
    },
    {
      name: 'repeats the reason of an agent that reports no back-off',
      replicas: [READY, { ...backingOff('exit code 1'), nextStartAt: undefined }],
      reason: 'replica web-2: exit code 1, restarting in 40 s',
    },
    {
      name: 'ignores a replica that is ordered to stop',
      replicas: [STARTING, backingOff('exit code 1', { desiredRunning: false })],
      reason: 'replica web-1: pulling nginx',
    },
  ])('$name', async ({ replicas, reason }) => {
    await open(replicas);
    expect(present()?.reason).toBe(reason);
  });

  it('shows the next start of a replica until the replica is ordered to stop', async () => {
    await open([backingOff('exit code 1')]);
    expect(present()?.replicas[0]?.nextStartAt).toEqual(NEXT_START);
    await bed.changeReplica('web-1', { desiredRunning: false });
    expect(present()?.replicas[0]?.nextStartAt).toBeUndefined();
  });

  it.each([
    {
      name: 'without the failed starts that the record counts among them',
      counts: { restarts: 5, failedStarts: 4 },
      shown: { restarts: 1, failedStarts: 4 },
    },
    {
      name: 'with the failed starts when an agent of an earlier version does not report them',
      counts: { restarts: 5 },
      shown: { restarts: 5, failedStarts: 0 },
    },
  ])('shows the restarts of a replica $name', async ({ counts, shown }) => {
    await open([{ ...STARTING, ...counts }]);
    expect(present()?.replicas[0]).toMatchObject(shown);
  });

  it('has the phase and the counts that it has without back-off', async () => {
    await open([READY, backingOff('exit code 1')]);
    const { reason: _reason, replicas: _replicas, ...status } = present() ?? { reason: '' };
    await bed.changeReplica('web-2', { nextStartAt: undefined });
    expect(present()).toMatchObject(status);
  });
});
