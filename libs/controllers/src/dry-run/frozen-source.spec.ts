import { clone } from '@bufbuild/protobuf';
import { ReplicaRecordSchema } from '@cloudless/api/store';
import { assert } from '@cloudless/base';
import { TestBed } from '../testing/test-bed.js';
import { FrozenSource } from './frozen-source.js';

let bed: TestBed;
beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1', 'node-2', 'node-3'] });
  await bed.createWorkload({ replicas: 2 });
  await bed.addReplicas(2);
  await bed.changeControl({ nextSequence: 3n, activeVersion: 1, rollout: { version: 1 } });
});
afterEach(() => bed.close());

describe('FrozenSource', () => {
  it('keeps showing the records of its creation while they change', async () => {
    await bed.advance(1_000);
    const [replica] = bed.replicas();
    assert(replica !== undefined, 'the workload has replicas');
    const source = new FrozenSource(bed.dependencies({}));
    const show = () => ({
      workload: source.view.workload('web')?.value.generation,
      created: source.view.workload('new')?.value.uid,
      control: source.view.control('web')?.value.nextSequence,
      versions: source.view.versions('web').map(({ version }) => version),
      version: source.view.version('web', 2)?.version,
      cordoned: source.view.node('node-1')?.value.cordoned,
      nodes: [...source.view.nodes()].length,
      workloads: [...source.view.workloads()].length,
      replicas: [...source.view.replicasOf('web')]
        .map(({ value }) => [value.id, value.ready])
        .sort(),
      onNode1: [...source.view.replicasOn('node-1')].map(({ value }) => value.id).sort(),
      onNode2: [...source.view.replicasOn('node-2')].map(({ value }) => value.id).sort(),
      alive: source.nodes.isAlive('node-3'),
      status: source.nodes.status('node-3').phase,
      readyForMs: [1, 2].map((number) =>
        source.readiness.readyForMs(
          Object.assign(clone(ReplicaRecordSchema, replica), { sequence: BigInt(number) }),
        ),
      ),
      nowMs: source.clock.wallTime(),
      revision: source.view.revision,
    });
    const before = show();
    expect(before.readyForMs).toEqual([1_000, 1_000]);
    await bed.updateWorkload({ replicas: 2, args: ['new'] });
    await bed.createWorkload({}, 'new');
    await bed.changeControl({ nextSequence: 9n });
    await bed.changeNode('node-1', { cordoned: true });
    await bed.addNode('node-4');
    await bed.changeReplica('web-1', { ready: false });
    await bed.changeReplica('web-1', { nodeId: 'node-2' });
    await bed.changeReplica('web-2', { containerId: 'restarted' });
    bed.disconnect('node-3');
    await bed.advance(500);
    expect(show()).toEqual(before);
    source.close();
  });
});
