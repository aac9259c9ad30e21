import { settle } from '@cloudless/base/testing';
import { AgentTestBed } from '../testing/index.js';
import type { KeptSession } from './lease-keeper.js';

/** Starts an agent whose lease keeper records its calls; `-` is a release. */
async function startRecorded(): Promise<{ testBed: AgentTestBed; calls: (KeptSession | '-')[] }> {
  const calls: (KeptSession | '-')[] = [];
  const testBed = new AgentTestBed();
  testBed.leaseKeeper = {
    keep: (session) => calls.push(session),
    release: () => calls.push('-'),
  };
  await testBed.start();
  await settle();
  return { testBed, calls };
}

const lastGoodbye = (testBed: AgentTestBed): unknown =>
  testBed.coordinator.received.findLast(({ case: kind }) => kind === 'goodbye')?.value;

describe('lease keeper of the session', () => {
  it('watches over each admitted session with its id and times, until the session ends', async () => {
    const { testBed, calls } = await startRecorded();
    expect(calls).toEqual([
      {
        address: 'http://a',
        nodeId: 'node-1',
        sessionId: 'session-1',
        pingIntervalMs: 900,
        leaseMs: 3_000,
      },
    ]);
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(1_000);
    expect(calls.slice(1)).toMatchObject(['-', { sessionId: 'session-2' }]);
  });

  it('is not used with a coordinator that sends no session id', async () => {
    const calls: string[] = [];
    const testBed = new AgentTestBed();
    testBed.coordinator.sendsSessionIds = false;
    testBed.leaseKeeper = { keep: () => calls.push('keep'), release: () => undefined };
    await testBed.start();
    await settle();
    expect(calls).toEqual([]);
  });

  it('is released before the Goodbye, and answered pings do not count any more', async () => {
    const { testBed, calls } = await startRecorded();
    await testBed.stop();
    expect(calls.slice(1, 2)).toEqual(['-']);
  });
});

describe('Goodbye of the agent', () => {
  it.each([
    { name: 'stops', options: {}, replicasContinue: true, reason: 'the agent is stopping' },
    {
      name: 'stops its workloads',
      options: { stopWorkloads: true },
      replicasContinue: false,
      reason: 'the agent stops its workloads',
    },
    {
      name: 'stops because the machine shuts down',
      options: { machineStops: true },
      replicasContinue: false,
      reason: 'the machine shuts down',
    },
  ])(
    'says whether the replicas continue when the agent $name',
    async ({ options, reason, replicasContinue }) => {
      const { testBed } = await startRecorded();
      await testBed.stop(options);
      expect(lastGoodbye(testBed)).toMatchObject({ reason, replicasContinue });
    },
  );
});
