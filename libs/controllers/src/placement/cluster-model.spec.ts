import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import { toNodeId } from '@cloudless/base';
import { createCluster } from '@cloudless/scheduler';
import { TestBed } from '../testing/test-bed.js';
import { ClusterModel } from './cluster-model.js';

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

  it('adds a node that joins, and releases the resources of a replica that has stopped', async () => {
    const countReplicas = openModel();
    await bed.addNode('node-3');
    await bed.changeReplica('web-1', { desiredRunning: false, phase: Phase.STOPPED });
    expect(countReplicas()).toEqual([2, 0, 0]);
  });
});
