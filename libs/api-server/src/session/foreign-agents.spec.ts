import { createSeededRandom, silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { openClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ForeignAgents } from './foreign-agents.js';

async function createForeignAgents() {
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
  const foreignAgents = new ForeignAgents({ state, clock, log });
  const listEventReasons = (): readonly string[] =>
    [...state.view().events()].map(({ reason }) => reason);
  return { clock, state, foreignAgents, logged, listEventReasons };
}

describe('ForeignAgents', () => {
  it('logs one error, writes one event and lists one warning with the number of nodes for each other cluster', async () => {
    const { state, foreignAgents, logged, listEventReasons } = await createForeignAgents();
    for (const node of ['node-1', 'node-2', 'node-1']) foreignAgents.recordRefusal(node, 'other');
    foreignAgents.recordRefusal('node-3', 'third');
    await settle();
    expect(logged).toEqual([
      'agent of another cluster refused',
      'agent of another cluster refused',
    ]);
    expect(listEventReasons()).toEqual(['AgentOfAnotherCluster', 'AgentOfAnotherCluster']);
    expect(foreignAgents.listWarnings()).toEqual([
      expect.stringContaining(
        '2 agents of another cluster (other) called this coordinator',
      ) as string,
      expect.stringContaining(
        '1 agent of another cluster (third) called this coordinator',
      ) as string,
    ]);
    await state.close();
  });

  it('removes the warning about a cluster whose agents have not called for more than a minute', async () => {
    const { clock, state, foreignAgents } = await createForeignAgents();
    foreignAgents.recordRefusal('node-1', 'other');
    await clock.advance(50_000);
    foreignAgents.recordRefusal('node-1', 'other');
    await clock.advance(60_000);
    expect(foreignAgents.listWarnings()).toHaveLength(1);
    await clock.advance(1);
    expect(foreignAgents.listWarnings()).toEqual([]);
    await state.close();
  });

  it('reports at most 16 clusters and truncates the cluster ids that agents claim', async () => {
    const { state, foreignAgents, logged } = await createForeignAgents();
    for (let index = 0; index < 100; index += 1)
      foreignAgents.recordRefusal('node-1', `${index}-${'x'.repeat(1_000)}`);
    expect({ clusters: foreignAgents.listWarnings().length, logged: logged.length }).toEqual({
      clusters: 16,
      logged: 16,
    });
    expect(Math.max(...foreignAgents.listWarnings().map(({ length }) => length))).toBeLessThan(400);
    await state.close();
  });
});
