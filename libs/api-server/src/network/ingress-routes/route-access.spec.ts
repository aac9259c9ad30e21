import type { Client } from '@connectrpc/connect';
import { NetworkService, SecretsService } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import type { Grant } from '@cloudless/identity';
import { ApiTestBed } from '../../testing/api-test-bed.js';
import { createCertificate } from '../../testing/certificate-pairs.js';
import { TestIdentity, createTokenClient } from '../../testing/test-identity.js';

describe('the role for certificates of routes', () => {
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

  it('is operator in the whole cluster for files, and a tenant may change all else and end TLS', async () => {
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

  describe('in secrets', () => {
    const rules = [{ service: 'web', port: '80' }];
    const tls = { certificateSecret: 'cert' };
    const web = { namespace: 'shop', name: 'web' };
    const denied =
      'user/ann may not set spec.tls.certificate_secret without spec.hosts: this needs the role operator in the whole cluster, because the certificate would be served for every host without another certificate; ask an administrator';
    let tenant: Client<typeof NetworkService>;
    let operator: Client<typeof NetworkService>;
    beforeEach(async () => {
      const ann = await identity.putUser(bed, 'ann', [{ role: 'operator', namespace: 'shop' }]);
      tenant = createTokenClient(bed, NetworkService, ann);
      operator = await as('bob', { role: 'operator', namespace: '' });
      const secrets = createTokenClient(bed, SecretsService, ann);
      const data = await createCertificate();
      for (const name of ['cert', 'next'])
        await secrets.createSecret({ namespace: 'shop', name, data, audiences: ['route/*'] });
    });

    it('is operator in the namespace with hosts, also for another secret and other hosts', async () => {
      await tenant.createRoute({ ...web, spec: { hosts: ['a.b'], rules, tls } });
      await tenant.updateRoute({ ...web, spec: { hosts: ['c.d', '*.d'] } });
      const next = { tls: { certificateSecret: 'next' } };
      const { spec } = await tenant.updateRoute({ ...web, spec: next });
      expect(spec).toMatchObject({ hosts: ['c.d', '*.d'], ...next });
    });

    it('is operator in the whole cluster without hosts, also when the hosts are removed later', async () => {
      await expect(tenant.createRoute({ ...web, spec: { rules, tls } })).rejects.toThrow(denied);
      await tenant.createRoute({ ...web, spec: { hosts: ['a.b'], rules, tls } });
      const removed = { ...web, updateMask: { paths: ['hosts'] } };
      await expect(tenant.updateRoute(removed)).rejects.toThrow(denied);
      await operator.updateRoute(removed);
      await tenant.createRoute({
        namespace: 'shop',
        name: 'blog',
        spec: { hosts: ['c.d'], rules },
      });
      const both = { spec: { tls }, updateMask: { paths: ['hosts', 'tls'] } };
      await expect(
        tenant.updateRoute({ namespace: 'shop', name: 'blog', ...both }),
      ).rejects.toThrow(denied);
    });

    it('permits a tenant all else on a route without hosts that an operator has made', async () => {
      await operator.createRoute({ ...web, spec: { rules, tls } });
      await tenant.updateRoute({ ...web, spec: { redirectToHttps: true } });
      const next = { tls: { certificateSecret: 'next' } };
      await expect(tenant.updateRoute({ ...web, spec: next })).rejects.toThrow(denied);
      await tenant.updateRoute({ ...web, spec: { ...next, hosts: ['a.b'] } });
      await expect(
        tenant.updateRoute({ ...web, updateMask: { paths: ['hosts'] } }),
      ).rejects.toThrow(denied);
    });

    it('is the role for files when a route changes from a secret to files', async () => {
      await tenant.createRoute({ ...web, spec: { hosts: ['a.b'], rules, tls } });
      const change = {
        ...web,
        spec: { tls: { certificateFile: '/a.pem', keyFile: '/a.key' } },
        updateMask: { paths: ['tls'] },
      };
      await expect(tenant.updateRoute(change)).rejects.toThrow('files on nodes belong to no names');
      await operator.updateRoute(change);
    });

    it('is needed in the namespace of the route, whose secrets alone can be named', async () => {
      const eve = await as('eve', { role: 'operator', namespace: 'other' });
      const spec = { hosts: ['a.b'], rules, tls };
      await expect(eve.createRoute({ ...web, spec })).rejects.toThrow(
        'does not have the role operator in namespace "shop"',
      );
      await expect(eve.createRoute({ namespace: 'other', name: 'web', spec })).rejects.toThrow(
        'secret "other/cert" not found',
      );
    });
  });
});
