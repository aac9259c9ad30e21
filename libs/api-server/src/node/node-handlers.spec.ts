import {
  NodeStatus_Phase as NodePhase,
  ReplicaStatus_Phase as Phase,
  Taint_Effect as Effect,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

const instanceId = 'instance-0123456789';

describe('NodeHandlers', () => {
  it('enrols a machine once when it calls twice, and rejects another machine with the same node id', async () => {
    const request = { nodeId: 'node-1', instanceId };
    expect(await bed.client.enrollNode(request)).toMatchObject({
      nodeId: 'node-1',
      clusterId: bed.state.clusterId,
    });
    await bed.client.enrollNode(request);
    expect(bed.events('NodeEnrolled')).toHaveLength(1);
    await expect(
      bed.client.enrollNode({ nodeId: 'node-1', instanceId: `${instanceId}x` }),
    ).rejects.toThrow('is enrolled by another machine');
  });

  it.each([
    { name: 'a certificate request', credential: { csr: new Uint8Array(1) } },
    { name: 'a token', credential: { token: 'x' } },
  ])(
    'rejects the enrolment with $name, because the cluster has no identities',
    async ({ credential }) => {
      await expect(
        bed.client.enrollNode({ nodeId: 'node-1', instanceId, ...credential }),
      ).rejects.toThrow('this cluster has no identities');
    },
  );

  it('lists the nodes that match a label selector, sorted by id', async () => {
    await bed.putNode('node-2', { labels: { disk: 'ssd' } });
    await bed.putNode('node-1', { labels: { disk: 'ssd' } });
    await bed.putNode('node-3', { labels: { disk: 'hdd' } });
    const { nodes, revision } = await bed.client.listNodes({ labelSelector: 'disk=ssd' });
    expect(nodes.map(({ id }) => id)).toEqual(['node-1', 'node-2']);
    expect(revision).toBe(bed.state.view().revision);
  });

  it('shows whether a node has a network proxy, and nothing before its first session', async () => {
    await bed.putNode('n1', { hello: { network: {} } });
    await bed.putNode('n2', { hello: {} });
    await bed.putNode('n3');
    const { nodes } = await bed.client.listNodes({});
    expect(nodes.map(({ id, status }) => [id, status?.networkProxy])).toEqual([
      ['n1', true],
      ['n2', false],
      ['n3', undefined],
    ]);
  });

  it('sets and removes labels and taints, and sets the zone of a node', async () => {
    await bed.putNode('node-1', { labels: { a: '1', b: '2' } });
    const node = await bed.client.updateNode({
      nodeId: 'node-1',
      setLabels: { c: '3' },
      removeLabels: ['a'],
      setTaints: [{ key: 'gpu', effect: Effect.NO_SCHEDULE }],
      zone: 'zone-b',
    });
    expect(node).toMatchObject({ labels: { b: '2', c: '3' }, zone: 'zone-b' });
    expect(node.taints.map(({ key }) => key)).toEqual(['gpu']);
    expect(bed.events('NodeUpdated')[0]?.message).toBe(
      'node node-1 was changed: label c=3 set, label a removed, taint gpu:NO_SCHEDULE set, zone is "zone-b" now',
    );
    await expect(
      bed.client.updateNode({ nodeId: 'node-1', removeTaints: ['gpu:SOMETIMES'] }),
    ).rejects.toThrow('remove_taints[0]: "SOMETIMES" is not an effect');
    expect(
      (await bed.client.updateNode({ nodeId: 'node-1', removeTaints: ['gpu'] })).taints,
    ).toEqual([]);
  });

  it('cordons a node, drains it, changes the drain to force, and uncordons it', async () => {
    await bed.putNode('node-1');
    expect(await bed.client.cordonNode({ nodeId: 'node-1' })).toMatchObject({ cordoned: true });
    expect(await bed.client.drainNode({ nodeId: 'node-1' })).toMatchObject({ draining: true });
    await bed.client.drainNode({ nodeId: 'node-1' });
    expect(bed.events('NodeDraining')).toHaveLength(1);
    await bed.client.drainNode({ nodeId: 'node-1', force: true });
    expect(bed.events('NodeDrainChanged')).toHaveLength(1);
    expect(await bed.client.uncordonNode({ nodeId: 'node-1' })).toMatchObject({
      cordoned: false,
      draining: false,
    });
    expect(bed.state.view().node('node-1')?.value.drain).toBeUndefined();
  });

  it('confirms the loss of a node only when the phase of the node is LOST', async () => {
    await bed.putNode('node-1');
    await expect(bed.client.confirmNodeLost({ nodeId: 'node-1' })).rejects.toThrow('not LOST');
    expect(bed.nodes.confirmed).toEqual([]);
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    await bed.client.confirmNodeLost({ nodeId: 'node-1' });
    expect(bed.nodes.confirmed).toEqual(['node-1']);
    expect(bed.state.view().node('node-1')?.value.lossConfirmed).toBe(true);
  });

  it('removes a node that has replicas only when force is set', async () => {
    await bed.putNode('node-1');
    await bed.putReplica('w-0', { phase: Phase.RUNNING });
    await expect(bed.client.removeNode({ nodeId: 'node-1' })).rejects.toThrow('holds 1 replicas');
    await bed.client.removeNode({ nodeId: 'node-1', force: true });
    expect(bed.state.view().node('node-1')).toBeUndefined();
    expect(bed.state.view().replica('w-0')).toBeUndefined();
  });

  it('rejects the removal of a connected node, even with force', async () => {
    const agent = await bed.connectAgent('node-1');
    agent.sendInventory();
    await bed.settle();
    await expect(bed.client.removeNode({ nodeId: 'node-1', force: true })).rejects.toThrow(
      'is connected; stop its agent first',
    );
  });
});
