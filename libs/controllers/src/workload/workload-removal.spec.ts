import { create } from '@bufbuild/protobuf';
import { ServiceAddressRecordSchema, ServiceRecordSchema } from '@cloudless/api/store';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadReconciler } from './workload-reconciler.js';

let bed: TestBed;

beforeEach(async () => {
  bed = await TestBed.open({ nodes: ['node-1'] });
  bed.use(new WorkloadReconciler(bed));
  await bed.createWorkload({ replicas: 1 });
  await bed.advance();
  await bed.runAll();
});
afterEach(() => bed.close());

/** Stores the service `default/web` with an address. */
async function putService(ownerUid: string): Promise<void> {
  const service = {
    namespace: 'default',
    name: 'web',
    uid: 's1',
    ownerUid,
    clusterIp: '10.96.0.9',
  };
  const transaction = bed.state
    .transaction()
    .put('service', 'default/web', create(ServiceRecordSchema, service))
    .put('serviceip', '10.96.0.9', create(ServiceAddressRecordSchema, { serviceUid: 's1' }));
  await bed.state.commit(transaction);
}

async function removeWorkload(): Promise<void> {
  await bed.confirmStops();
  await bed.advance();
  expect(bed.state.view().workload('web')).toBeUndefined();
}

describe('removal of a workload with a service', () => {
  it('deletes the service of expose after the last replica, and releases its address', async () => {
    await putService('web');
    await bed.deleteWorkload();
    await bed.advance();
    expect(bed.state.view().service('default/web')).toBeDefined();
    await removeWorkload();
    const view = bed.state.view();
    expect(view.service('default/web')).toBeUndefined();
    expect(view.serviceAddress('10.96.0.9')?.value.releasedAt).toBeDefined();
    expect(bed.events('ServiceDeleted')).toMatchObject([
      { message: 'service default/web was deleted with its workload' },
    ]);
  });

  it('keeps a service that CreateService created', async () => {
    await putService('');
    await bed.deleteWorkload();
    await bed.advance();
    await removeWorkload();
    expect(bed.state.view().service('default/web')).toBeDefined();
  });
});
