import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { toNodeId } from '@cloudless/base';
import { createCluster } from '@cloudless/scheduler';
import { TestBed } from '../testing/test-bed.js';
import { ClusterModel, refreshReservation } from './cluster-model.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2'] });
  await bed.createWorkload({ replicas: 3 });
  await bed.addReplicas(3, () => ({ nodeId: 'node-1' }));
});

afterEach(() => bed.close());

/** Opens a model on the state of the test bed; returns the number of replicas by node. */
function openModel() {
  const cluster = createCluster();
  bed.use(new ClusterModel({ state: bed.state, nodes: bed.nodes, cluster }));
  return () =>
    ['node-1', 'node-2', 'node-3'].map((nodeId) => cluster.usage(toNodeId(nodeId))?.replicas);
}

describe('ClusterModel', () => {
  it('starts with the nodes and replicas of the state', () => {
    expect(openModel()()).toEqual([3, 0, undefined]);
  });

  it('starts with the reservations that each replica has on its own', async () => {
    await bed.createWorkload({ replicas: 2, labels: { app: 'other' } }, 'other');
    await bed.updateWorkload({ resources: { requests: { cpuMillis: 700 } } });
    await bed.addReplicas(12, (index) => ({
      ...{ id: `web-${index + 4}`, sequence: BigInt(index + 4) },
      ...(index % 4 === 3 ? { uid: 'other', id: `other-${index}`, sequence: BigInt(index) } : {}),
      version: index % 3 === 0 ? 1 : 2,
      desiredRunning: index % 5 !== 0,
      nodeId: ['node-1', 'node-2', 'node-3', ''][index % 4] ?? '',
      ...(index === 7 ? { nodeId: '', nominatedNodeId: 'node-2' } : {}),
      phase: index === 7 ? Phase.PENDING : index === 8 ? Phase.FAILED : Phase.RUNNING,
    }));
    const cluster = createCluster();
    bed.use(new ClusterModel({ state: bed.state, nodes: bed.nodes, cluster }));
    const expected = createCluster();
    for (const { value } of bed.state.view().replicas())
      refreshReservation(expected, bed.state.view(), value.id);
    for (const nodeId of ['node-1', 'node-2', 'node-3'].map(toNodeId)) {
      const reservations = cluster.reservationsOn(nodeId);
      expect(reservations.length).toBeGreaterThan(0);
      expect(reservations).toEqual(expected.reservationsOn(nodeId));
    }
  });

  it('adds a node that joins, and releases the resources of a replica that has stopped', async () => {
    const countReplicas = openModel();
    await bed.addNode('node-3');
    await bed.changeReplica('web-1', { desiredRunning: false, phase: Phase.STOPPED });
    expect(countReplicas()).toEqual([2, 0, 0]);
  });
});
