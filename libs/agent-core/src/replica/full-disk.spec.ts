import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { settle } from '@cloudless/base/testing';
import type { Log, LogFields } from '@cloudless/base';
import { aForgetOrder, aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

const NO_SPACE = 'the disk of the node is full (no space left on device)';
const start = aStartOrder({ spec: { preStopDelay: durationFromMs(0) } });
const stop = aStopOrder({ preStopMs: 0, graceMs: 100 });

/** Starts an agent whose replica web-1 runs, then leaves no space for its store. */
async function createFullNode(): Promise<AgentTestBed> {
  const testBed = new AgentTestBed();
  await testBed.start();
  testBed.coordinator.sendOrder(start);
  await settle();
  expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true });
  testBed.store.isFull = true;
  return testBed;
}

async function send(testBed: AgentTestBed, order: ReturnType<typeof aStopOrder>): Promise<void> {
  testBed.coordinator.sendOrder(order);
  await testBed.clock.advance(1_000);
}

const countRunning = async (testBed: AgentTestBed): Promise<number> =>
  (await testBed.runtime.list()).filter(({ phase }) => phase === 'running').length;

describe('A stop order on a node whose disk is full', () => {
  it('is stored with the reserve, carried out and acknowledged', async () => {
    const testBed = await createFullNode();
    testBed.store.reservedSaves = 1;
    await send(testBed, stop);
    expect(await countRunning(testBed)).toBe(0);
    expect(testBed.requireReport()).toMatchObject({ orderRevision: 20n });
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.store.replicas.get('web-1')?.end).toBeDefined();
  });

  it('is carried out without the reserve, and acknowledged only once it is stored', async () => {
    const testBed = await createFullNode();
    await send(testBed, stop);
    expect(await countRunning(testBed)).toBe(0);
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: 'killed by SIGTERM',
    });
    expect(testBed.requireReport().orderRevision).toBe(10n);
    testBed.store.isFull = false;
    await send(testBed, stop);
    expect(testBed.requireReport().orderRevision).toBe(20n);
    expect(testBed.store.replicas.get('web-1')).toMatchObject({ heldRevision: 20n });
  });

  it('is carried out only once, however often the coordinator repeats it', async () => {
    const testBed = await createFullNode();
    const runtimeStop = testBed.runtime.stop.bind(testBed.runtime);
    let stops = 0;
    testBed.runtime.stop = (...call) => ((stops += 1), runtimeStop(...call));
    await send(testBed, stop);
    const reports = testBed.coordinator.reportHistory.length;
    for (let repeats = 0; repeats < 5; repeats += 1) await send(testBed, stop);
    expect(stops).toBe(1);
    expect(testBed.coordinator.reportHistory).toHaveLength(reports);
  });

  it('keeps the next agent from starting the replica again', async () => {
    const testBed = await createFullNode();
    await send(testBed, stop);
    const { startCount } = testBed.machine;
    await testBed.restart();
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(startCount);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
    expect(testBed.requireReport().orderRevision).toBe(10n);
  });

  it('is continued by the next agent when the agent ends during the grace period', async () => {
    const testBed = await createFullNode();
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 30_000, graceMs: 100 }));
    await settle();
    expect(await countRunning(testBed)).toBe(1);
    await testBed.restart();
    await testBed.clock.advance(60_000);
    expect(await countRunning(testBed)).toBe(0);
  });

  it('stays in effect when space is free again and the agent stores other progress', async () => {
    const testBed = await createFullNode();
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 500, graceMs: 100 }));
    await settle();
    testBed.store.isFull = false;
    await testBed.clock.advance(5_000);
    const { startCount } = testBed.machine;
    await testBed.restart();
    await testBed.clock.advance(60_000);
    expect(testBed.machine.startCount).toBe(startCount);
    expect(await countRunning(testBed)).toBe(0);
  });

  it('is followed by the removal of all data when the coordinator forgets the replica', async () => {
    const testBed = await createFullNode();
    await send(testBed, stop);
    await send(testBed, aForgetOrder({ revision: 21n }));
    expect(testBed.requireReport()).toMatchObject({ forgotten: true, orderRevision: 21n });
    expect(testBed.store.replicas.size).toBe(0);
    expect(await testBed.runtime.list()).toEqual([]);
  });

  it('makes the agent refuse an older order for the replica', async () => {
    const testBed = await createFullNode();
    await send(testBed, stop);
    testBed.store.isFull = false;
    await send(testBed, aStartOrder({ revision: 15n }));
    expect(testBed.store.replicas.get('web-1')?.heldRevision).toBe(10n);
    expect(testBed.coordinator.received.at(-1)).toMatchObject({
      case: 'refused',
      value: { orderRevision: 15n, heldRevision: 20n },
    });
  });

  it('is carried out when nothing can be stored, and reported as stopped once it is stored', async () => {
    const testBed = await createFullNode();
    testBed.store.failure = new Error('read-only file system');
    await send(testBed, stop);
    expect(await countRunning(testBed)).toBe(0);
    // The next agent would start the replica, so the coordinator must not take it for stopped.
    expect(testBed.summarizeReport()).toEqual({
      phase: 'RUNNING',
      ready: false,
      restarts: 0,
      reason:
        'stopped, but the stop order is not stored: the disk of the node is full (no space left on device)',
    });
    testBed.store.isFull = false;
    await send(testBed, stop);
    expect(testBed.summarizeReport()?.reason).toBe(
      'stopped, but the stop order is not stored: the node cannot store the order: read-only file system',
    );
    testBed.store.failure = undefined;
    await send(testBed, stop);
    expect(testBed.summarizeReport()).toMatchObject({
      phase: 'STOPPED',
      reason: 'killed by SIGTERM',
    });
    expect(testBed.requireReport().orderRevision).toBe(20n);
  });

  it('stays reported as stopped when the store fails later in another way', async () => {
    const testBed = await createFullNode();
    await send(testBed, stop);
    testBed.store.failure = new Error('read-only file system');
    await send(testBed, stop);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'STOPPED' });
  });

  it('logs one error, not one each time the coordinator repeats the order', async () => {
    const testBed = new AgentTestBed();
    const errors: LogFields[] = [];
    testBed.log = recordErrors(errors);
    await testBed.start();
    await send(testBed, start);
    testBed.store.isFull = true;
    for (let repeats = 0; repeats < 3; repeats += 1) await send(testBed, stop);
    expect(errors).toHaveLength(1);
    expect(errors[0]).toMatchObject({ replicaId: 'web-1', revision: 20n, order: 'stop' });
  });
});

describe('A start order on a node whose disk is full', () => {
  it('is not carried out, does not use the reserve, and is reported with the reason', async () => {
    const testBed = await createFullNode();
    testBed.store.reservedSaves = 5;
    const order = aStartOrder({ replicaId: 'web-2', revision: 30n });
    await send(testBed, order);
    expect(testBed.machine.startCount).toBe(1);
    expect(testBed.store.reservedSaves).toBe(5);
    expect(testBed.summarizeReport('web-2')).toEqual({
      phase: 'STARTING',
      ready: false,
      restarts: 0,
      reason: `cannot start: ${NO_SPACE}`,
    });
    expect(testBed.requireReport('web-2').orderRevision).toBe(0n); // not acknowledged
  });

  it('is reported once while the coordinator repeats it, and carried out when there is space', async () => {
    const testBed = await createFullNode();
    const order = aStartOrder({ replicaId: 'web-2', revision: 30n });
    for (let repeats = 0; repeats < 3; repeats += 1) await send(testBed, order);
    const reports = testBed.coordinator.reportHistory;
    expect(reports.filter(({ replicaId }) => replicaId === 'web-2')).toHaveLength(1);
    testBed.store.isFull = false;
    await send(testBed, order);
    expect(testBed.summarizeReport('web-2')).toEqual({
      ...{ phase: 'RUNNING', ready: true, restarts: 0, reason: '' },
    });
  });

  it('gives up a start that cannot be stored after 10 s, so that another node gets the replica', async () => {
    const testBed = await createFullNode();
    const order = aStartOrder({ replicaId: 'web-2', revision: 30n });
    const readPhase = () => testBed.summarizeReport('web-2')?.phase;
    for (let repeats = 0; repeats < 10; repeats += 1) await send(testBed, order);
    expect(readPhase()).toBe('STARTING');
    await send(testBed, order);
    expect(testBed.summarizeReport('web-2')).toMatchObject({
      phase: 'STOPPED',
      reason: `not started: ${NO_SPACE}`,
    });
    testBed.store.isFull = false;
    await send(testBed, order);
    await testBed.restart();
    await send(testBed, order);
    expect(readPhase()).toBe('STOPPED');
    expect(testBed.machine.startCount).toBe(1);
    await send(testBed, aForgetOrder({ replicaId: 'web-2', revision: 31n }));
    expect(testBed.requireReport('web-2').forgotten).toBe(true);
  });

  it('counts the 10 s until a start is given up from the first refusal of the session', async () => {
    const testBed = await createFullNode();
    const order = aStartOrder({ replicaId: 'web-2', revision: 30n });
    const readPhase = () => testBed.summarizeReport('web-2')?.phase;
    await send(testBed, order);
    testBed.coordinator.reachable = false;
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(60_000);
    testBed.coordinator.reachable = true;
    await testBed.clock.advance(60_000);
    expect(testBed.coordinator.openSessions).toBe(1);
    for (let repeats = 0; repeats < 10; repeats += 1) await send(testBed, order);
    expect(readPhase()).toBe('STARTING');
    await send(testBed, order);
    expect(readPhase()).toBe('STOPPED');
  });

  it('does not give up a start while the data that may be stored cannot be removed', async () => {
    const testBed = await createFullNode();
    testBed.store.removeReplica = () => Promise.reject(new Error('input/output error'));
    const order = aStartOrder({ replicaId: 'web-2', revision: 30n });
    for (let repeats = 0; repeats < 20; repeats += 1) await send(testBed, order);
    expect(testBed.summarizeReport('web-2')).toMatchObject({
      phase: 'STARTING',
      reason: `cannot start: ${NO_SPACE}`,
    });
  });

  it('never gives up the start of a replica that has run on the node', async () => {
    const testBed = await createFullNode();
    testBed.bootId = 'boot-2';
    testBed.machine.reboot();
    await testBed.restart();
    for (let repeats = 0; repeats < 20; repeats += 1) await send(testBed, start);
    expect(testBed.summarizeReport()?.reason).toBe(`cannot start: ${NO_SPACE}`);
    testBed.store.isFull = false;
    await send(testBed, start);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING' });
  });

  it('is in the inventory of the next session with its reason', async () => {
    const testBed = await createFullNode();
    await send(testBed, aStartOrder({ replicaId: 'web-2', revision: 30n }));
    testBed.coordinator.reports.clear();
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(5_000);
    expect(testBed.summarizeReport('web-2')?.reason).toBe(`cannot start: ${NO_SPACE}`);
  });

  it('can be followed by a stop and a forget order, which end the replica', async () => {
    const testBed = await createFullNode();
    const replicaId = 'web-2';
    await send(testBed, aStartOrder({ replicaId, revision: 30n }));
    await send(testBed, aStopOrder({ replicaId, revision: 31n }));
    expect(testBed.summarizeReport(replicaId)).toMatchObject({ phase: 'STOPPED' });
    await send(testBed, aForgetOrder({ replicaId, revision: 32n }));
    expect(testBed.requireReport(replicaId).forgotten).toBe(true);
    expect(testBed.agent.replicas.find(replicaId)).toBeUndefined();
    expect(testBed.machine.startCount).toBe(1);
  });

  it('shows its reason also after a reboot, when the repeated order cannot be stored', async () => {
    const testBed = await createFullNode();
    testBed.bootId = 'boot-2';
    testBed.machine.reboot();
    await testBed.restart();
    await send(testBed, start);
    expect(testBed.summarizeReport()?.reason).toBe(`cannot start: ${NO_SPACE}`);
    testBed.store.isFull = false;
    await send(testBed, start);
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
  });

  it('leaves a running replica as it is when the order changes it', async () => {
    const testBed = await createFullNode();
    await send(testBed, aStartOrder({ revision: 11n }));
    expect(testBed.summarizeReport()).toMatchObject({ phase: 'RUNNING', ready: true, reason: '' });
    expect(testBed.requireReport().orderRevision).toBe(10n);
  });
});

/** Collects the fields of error lines, with those of the child loggers. */
function recordErrors(errors: LogFields[], bound: LogFields = {}): Log {
  const ignore = (): void => undefined;
  return {
    error: (_message, fields) => void errors.push({ ...bound, ...fields }),
    ...{ warn: ignore, info: ignore, debug: ignore },
    child: (fields) => recordErrors(errors, { ...bound, ...fields }),
  };
}
