import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import type { ScriptedAgent } from '../testing/scripted-agent.js';

describe('stop orders of replicas behind a service', () => {
  let bed: ApiTestBed;
  let agent: ScriptedAgent;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    await bed.putReplica('w-0', { phase: Phase.RUNNING, ready: true });
    agent = await connect();
  });
  afterEach(() => bed.stop());

  async function connect(): Promise<ScriptedAgent> {
    const connected = await bed.connectAgent('node-1');
    connected.sendInventory([{ replicaId: 'w-0', phase: Phase.RUNNING, ready: true }]);
    await bed.settle();
    return connected;
  }

  const stop = async (): Promise<void> => {
    await bed.updateReplica('w-0', {
      desiredRunning: false,
      orderRevision: bed.state.view().revision,
    });
    await bed.settle();
  };
  const listGone = (): readonly string[] =>
    agent.received.flatMap(({ message }) =>
      message.case === 'endpointsGone' ? message.value.replicaIds : [],
    );
  const getWaitSeconds = (): bigint | undefined => {
    const order = agent.orderMessages.at(-1)?.order;
    return order?.case === 'stop' ? order.value.awaitEndpointsGone?.seconds : undefined;
  };

  it('wait for at most 5 s until no proxy chooses the replica', async () => {
    bed.network.endpoints.add('w-0');
    await stop();
    expect([getWaitSeconds(), listGone()]).toEqual([5n, []]);
    bed.network.reportGone('w-0');
    await bed.settle();
    expect(listGone()).toEqual(['w-0']);
  });

  it('are followed by the news for an agent that connects again', async () => {
    bed.network.endpoints.add('w-0');
    await stop();
    agent.disconnect();
    await bed.settle();
    bed.network.reportGone('w-0');
    agent = await connect();
    expect(agent.kinds.filter((kind) => kind === 'order' || kind === 'endpointsGone')).toEqual([
      'order',
      'endpointsGone',
    ]);
  });

  it('do not wait for a replica that is behind no service', async () => {
    await stop();
    expect([agent.orders.at(-1), getWaitSeconds()]).toEqual(['stop w-0', undefined]);
  });
});
