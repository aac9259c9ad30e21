import { WorkloadSpec_Mode as Mode } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.client.createWorkload({
    name: 'web',
    spec: { command: ['serve'], labels: { app: 'a' } },
  });
});
afterEach(() => bed.stop());

describe('WorkloadHandlers', () => {
  it('creates a workload in the default namespace, and rejects a second one and an empty spec', async () => {
    expect(await bed.client.getWorkload({ name: 'web' })).toMatchObject({
      namespace: 'default',
      generation: 1n,
    });
    await expect(
      bed.client.createWorkload({ name: 'web', spec: { command: ['serve'] } }),
    ).rejects.toThrow('workload "default/web" already exists');
    await expect(bed.client.createWorkload({ name: 'x', spec: {} })).rejects.toThrow(
      'image or command',
    );
  });

  it('updates only the fields of the mask, keeps the generation without a difference, and rejects another mode', async () => {
    const updated = await bed.client.updateWorkload({
      name: 'web',
      spec: { env: { A: '1' }, args: ['x'] },
      updateMask: { paths: ['env'] },
    });
    expect(updated).toMatchObject({ generation: 2n, spec: { env: { A: '1' }, args: [] } });
    expect(
      (await bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } })).generation,
    ).toBe(2n);
    await expect(
      bed.client.updateWorkload({ name: 'web', spec: { mode: Mode.GLOBAL } }),
    ).rejects.toThrow('spec.mode');
  });

  it('rejects an update, deletion, undo or restart when the generation is not the expected one', async () => {
    const expected = { name: 'web', expectedGeneration: 5n };
    const spec = { env: { A: '1' } };
    await expect(bed.client.updateWorkload({ ...expected, spec })).rejects.toThrow('not 5');
    await expect(bed.client.deleteWorkload(expected)).rejects.toThrow('not 5');
    await expect(bed.client.undoRollout(expected)).rejects.toThrow('not 5');
    await expect(bed.client.restartRollout(expected)).rejects.toThrow('not 5');
    expect(
      (await bed.client.scaleWorkload({ name: 'web', replicas: 2, expectedGeneration: 1n }))
        .generation,
    ).toBe(2n);
  });

  it('requests a deletion once, and rejects a change and a new creation while the workload is being deleted', async () => {
    await bed.client.deleteWorkload({ name: 'web' });
    await bed.client.deleteWorkload({ name: 'web' });
    expect(bed.events('WorkloadDeletionRequested')).toHaveLength(1);
    await expect(bed.client.scaleWorkload({ name: 'web', replicas: 2 })).rejects.toThrow(
      'workload "default/web" is being deleted',
    );
    await expect(
      bed.client.createWorkload({ name: 'web', spec: { command: ['serve'] } }),
    ).rejects.toThrow('is being deleted; wait until it is gone');
  });

  it('lists the workloads that match namespace and label selector, with replicas only on request', async () => {
    await bed.client.createWorkload({
      namespace: 'prod',
      name: 'api',
      spec: { command: ['serve'] },
    });
    await bed.putReplica('w-0');
    const names = async (request: object) =>
      (await bed.client.listWorkloads(request)).workloads.map(({ name }) => name);
    expect(await names({})).toEqual(['web', 'web-w', 'api']);
    expect(await names({ namespace: 'prod' })).toEqual(['api']);
    expect(await names({ labelSelector: 'app=a' })).toEqual(['web']);
    const [, plain] = (await bed.client.listWorkloads({})).workloads;
    const [, full] = (await bed.client.listWorkloads({ includeReplicas: true })).workloads;
    expect([plain, full].map((one) => one?.status?.replicas.length)).toEqual([0, 1]);
  });

  it('lists only the workloads with a replica on the node, and only these replicas, with node_id', async () => {
    await bed.putReplica('w-0', { nodeId: 'node-1' });
    await bed.putReplica('w-1', { nodeId: 'node-2' });
    const onNode = async (nodeId: string) =>
      (await bed.client.listWorkloads({ nodeId, includeReplicas: true })).workloads.map(
        ({ name, status }) => [name, status?.replicas.map(({ id }) => id)],
      );
    expect(await onNode('node-1')).toEqual([['web-w', ['w-0']]]);
    expect(await onNode('node-3')).toEqual([]);
  });
});
