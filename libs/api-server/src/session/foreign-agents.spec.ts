import { createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { openClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ForeignAgents } from './foreign-agents.js';

async function aCoordinator() {
  const clock = new ManualClock();
  const logged: string[] = [];
  const log: Log = {
    ...silentLog,
    error: (message) => void logged.push(message),
    child: () => log,
  };
  const store = createMemoryStateStore({ clock });
  const state = await openClusterState({
    store,
    clock,
    random: createSeededRandom(1),
    log,
    holder: 'test',
  });
  const foreign = new ForeignAgents({ state, clock, log });
  const listReasons = (): readonly string[] =>
    [...state.view().events()].map(({ reason }) => reason);
  return { clock, state, foreign, logged, reasons: listReasons };
}

describe('ForeignAgents', () => {
  it('logs one error and writes one event for each cluster, and counts the nodes', async () => {
    const { state, foreign, logged, reasons } = await aCoordinator();
    for (const node of ['node-1', 'node-2', 'node-1']) foreign.recordRefusal(node, 'other');
    foreign.recordRefusal('node-3', 'third');
    await settle();
    expect(logged).toEqual([
      'agent of another cluster refused',
      'agent of another cluster refused',
    ]);
    expect(reasons()).toEqual(['AgentOfAnotherCluster', 'AgentOfAnotherCluster']);
    expect(foreign.listWarnings()).toEqual([
      expect.stringContaining(
        '2 agents of another cluster (other) called this coordinator',
      ) as string,
      expect.stringContaining(
        '1 agent of another cluster (third) called this coordinator',
      ) as string,
    ]);
    await state.close();
  });

  it('forgets a cluster whose agents have not called for a minute', async () => {
    const { clock, state, foreign } = await aCoordinator();
    foreign.recordRefusal('node-1', 'other');
    await clock.advance(50_000);
    foreign.recordRefusal('node-1', 'other');
    await clock.advance(60_000);
    expect(foreign.listWarnings()).toHaveLength(1);
    await clock.advance(1);
    expect(foreign.listWarnings()).toEqual([]);
    await state.close();
  });

  it('remembers at most 16 clusters and shortens the ids that agents claim', async () => {
    const { state, foreign, logged } = await aCoordinator();
    for (let index = 0; index < 100; index += 1)
      foreign.recordRefusal('node-1', `${index}-${'x'.repeat(1_000)}`);
    expect({ clusters: foreign.listWarnings().length, logged: logged.length }).toEqual({
      clusters: 16,
      logged: 16,
    });
    expect(Math.max(...foreign.listWarnings().map(({ length }) => length))).toBeLessThan(400);
    await state.close();
  });
});
