import { NodeStatus_Phase as NodePhase } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import type { ScriptedAgent } from '../testing/scripted-agent.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

/** Connects an agent; returns it with the id of its session. */
async function connect(admitted = true): Promise<{ agent: ScriptedAgent; sessionId: string }> {
  const agent = await bed.connectAgent('node-1');
  if (admitted) agent.sendInventory();
  await bed.settle();
  const welcome = agent.received[0]?.message;
  if (welcome?.case !== 'welcome') throw new Error('there is no Welcome');
  return { agent, sessionId: welcome.value.sessionId };
}

const renew = (sessionId: string, nodeId = 'node-1') =>
  bed.client.renewLease({ nodeId, sessionId, loopAge: { seconds: 4n, nanos: 500_000_000 } });

describe('RenewLease', () => {
  it('renews the lease of the current session, with the age of the main loop', async () => {
    const { sessionId } = await connect();
    const before = bed.nodes.renewals.get('node-1') ?? 0;
    await renew(sessionId);
    expect(bed.nodes.renewals.get('node-1')).toBe(before + 1);
    expect(bed.nodes.loopAges.get('node-1')).toBe(4_500);
  });

  it.each([
    { name: 'a wrong session', use: async () => connect().then(() => 'f'.repeat(32)) },
    {
      name: 'a session whose inventory is not complete',
      use: async () => (await connect(false)).sessionId,
    },
    {
      name: 'an older session of the node',
      use: async () => {
        const { sessionId } = await connect();
        await connect();
        return sessionId;
      },
    },
    {
      name: 'a session that said goodbye',
      use: async () => {
        const { agent, sessionId } = await connect();
        const value = { reason: '', replicasContinue: true };
        agent.send({ message: { case: 'goodbye', value } });
        await bed.settle();
        return sessionId;
      },
    },
    {
      name: 'a session whose lease has ended',
      use: async () => {
        const { sessionId } = await connect();
        bed.nodes.setPhase('node-1', NodePhase.LOST);
        await bed.settle();
        return sessionId;
      },
    },
  ])('refuses $name and renews nothing', async ({ use }) => {
    const sessionId = await use();
    bed.nodes.loopAges.clear();
    await expect(renew(sessionId)).rejects.toThrow('is not the current session of node "node-1"');
    expect(bed.nodes.loopAges.size).toBe(0);
  });

  it('refuses the session of another node', async () => {
    const { sessionId } = await connect();
    await bed.connectAgent('node-2');
    await expect(renew(sessionId, 'node-2')).rejects.toThrow('not the current session');
  });
});

describe('Goodbye', () => {
  it.each([
    { replicasContinue: true, phase: NodePhase.AWAY },
    { replicasContinue: false, phase: NodePhase.DISCONNECTED },
  ])(
    'ends the session although the agent keeps it open; replicasContinue $replicasContinue',
    async ({ replicasContinue, phase }) => {
      const { agent } = await connect();
      agent.send({ message: { case: 'goodbye', value: { reason: 'upgrade', replicasContinue } } });
      await bed.settle();
      expect([agent.ended, bed.nodes.status('node-1').phase]).toEqual([true, phase]);
    },
  );

  it('of a session whose inventory is not complete leaves the node as it was', async () => {
    const { agent } = await connect(false);
    const before = bed.nodes.status('node-1').phase;
    const value = { reason: '', replicasContinue: true };
    agent.send({ message: { case: 'goodbye', value } });
    await bed.settle();
    expect([agent.ended, bed.nodes.status('node-1').phase]).toEqual([true, before]);
  });
});
