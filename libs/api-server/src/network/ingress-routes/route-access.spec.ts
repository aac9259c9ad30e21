import { NetworkService } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import type { Grant } from '@cloudless/identity';
import { ApiTestBed } from '../../testing/api-test-bed.js';
import { TestIdentity, createTokenClient } from '../../testing/test-identity.js';

describe('the role for certificate files of routes', () => {
  let bed: ApiTestBed;
  let identity: TestIdentity;

  beforeAll(async () => {
    identity = await TestIdentity.create(new ManualClock().wallTime());
  });
  beforeEach(async () => {
    bed = await ApiTestBed.open({ identity });
    await identity.putAuthority(bed);
  });
  afterEach(() => bed.stop());

  const as = async (name: string, grant: Grant) =>
    createTokenClient(bed, NetworkService, await identity.putUser(bed, name, [grant]));

  it('is operator in the whole cluster, and a tenant may change all else and end TLS', async () => {
    const tenant = await as('ann', { role: 'admin', namespace: 'shop' });
    const operator = await as('bob', { role: 'operator', namespace: '' });
    const denied =
      'may not set spec.tls: this needs the role operator in the whole cluster, because files on nodes belong to no namespace';
    const named = { namespace: 'shop', name: 'shop' };
    const rules = [{ service: 'web', port: '80' }];
    const tls = { certificateFile: '/a.pem', keyFile: '/a.key' };
    await expect(tenant.createRoute({ ...named, spec: { rules, tls } })).rejects.toThrow(denied);
    await operator.createRoute({ ...named, spec: { rules, tls } });
    await tenant.updateRoute({ ...named, spec: { hosts: ['a.b'] } });
    const other = { tls: { keyFile: '/b.key' } };
    await expect(tenant.updateRoute({ ...named, spec: other })).rejects.toThrow(denied);
    const { spec } = await tenant.updateRoute({ ...named, updateMask: { paths: ['tls'] } });
    expect(spec?.tls).toBeUndefined();
    await tenant.createRoute({ namespace: 'shop', name: 'blog', spec: { hosts: ['c.d'], rules } });
  });
});
