import { createClient, type Client } from '@connectrpc/connect';
import { NetworkService } from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
});
afterEach(() => bed.stop());

const spec = {
  command: ['serve'],
  ports: [{ name: 'http', containerPort: 8080 }, { containerPort: 9090 }],
};

describe('spec.expose', () => {
  it('creates the service in the transaction of the workload, and changes roll nothing', async () => {
    await bed.client.createWorkload({
      name: 'web',
      spec: { ...spec, expose: [{ name: 'http', port: 80 }] },
    });
    const created = await client.getService({ name: 'web' });
    expect(created).toMatchObject({
      ownerWorkload: 'web',
      spec: { workload: 'web', ports: [{ name: 'http', port: 80, targetPort: 'http' }] },
    });
    const uid = bed.state.view().workloadByName('default', 'web')?.value.uid ?? '';
    const revisionOf = (kind: 'workload' | 'service') =>
      kind === 'workload'
        ? bed.state.view().workload(uid)?.revision
        : bed.state.view().service('default/web')?.revision;
    expect(revisionOf('service')).toBe(revisionOf('workload'));

    await bed.client.updateWorkload({ name: 'web', spec: { expose: [{ port: 9090 }] } });
    const updated = await client.getService({ name: 'web' });
    expect(updated).toMatchObject({
      uid: created.uid,
      spec: { ports: [{ name: 'port-9090', port: 9090 }] },
      status: { clusterIp: created.status?.clusterIp },
    });
    expect(bed.state.view().workload(uid)?.value.version).toBe(1);

    const updateMask = { paths: ['expose'] };
    await bed.client.updateWorkload({ name: 'web', spec: {}, updateMask });
    await expect(client.getService({ name: 'web' })).rejects.toThrow('not_found');
    expect(bed.state.view().workload(uid)?.value.version).toBe(1);
  });

  it('leaves the service alone when the workload changes otherwise', async () => {
    await bed.client.createWorkload({ name: 'web', spec: { ...spec, expose: [{ port: 8080 }] } });
    await bed.client.updateWorkload({ name: 'web', spec: { env: { A: '1' } } });
    await bed.client.scaleWorkload({ name: 'web', replicas: 3 });
    expect((await client.getService({ name: 'web' })).generation).toBe(1n);
  });

  it('refuses calls that change or delete the service of a workload', async () => {
    await bed.client.createWorkload({ name: 'web', spec: { ...spec, expose: [{ port: 8080 }] } });
    await expect(client.deleteService({ name: 'web' })).rejects.toThrow(
      'service "default/web" belongs to spec.expose of workload "default/web"; change the workload',
    );
    await expect(client.updateService({ name: 'web' })).rejects.toThrow('change the workload');
  });

  it('writes nothing when a service has the name of the workload', async () => {
    await client.createService({ name: 'web', spec: { ports: [{ port: 80 }] } });
    const workload = { name: 'web', spec: { ...spec, expose: [{ port: 8080 }] } };
    await expect(bed.client.createWorkload(workload)).rejects.toThrow(
      'service "default/web" already exists, so spec.expose cannot create it',
    );
    await expect(bed.client.getWorkload({ name: 'web' })).rejects.toThrow('not found');
  });

  it.each([
    [{ name: 'none', port: 80 }, 'spec.expose[0].name: "none" is not a declared port'],
    [{ port: 80 }, 'spec.expose[0].port: no declared port has the number 80'],
  ])('refuses %j', async (exposed, message) => {
    const workload = { name: 'web', spec: { ...spec, expose: [exposed] } };
    await expect(bed.client.createWorkload(workload)).rejects.toThrow(message);
  });
});
