import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { TestAuthority } from '@cloudless/identity/testing';
import type { ClientTls } from '@cloudless/rpc-node/tls-client';
import { FakeCoordinatorServer } from '../testing/fake-coordinator-server.js';
import { FakeIdentities } from '../testing/fake-identities.js';
import { openRenewalConnection } from './renewal-connection.js';

describe('openRenewalConnection', () => {
  let identities: FakeIdentities;
  let coordinator: FakeCoordinatorServer;
  let tls: ClientTls;
  beforeAll(async () => {
    identities = await FakeIdentities.create();
    coordinator = new FakeCoordinatorServer(identities);
    await coordinator.listen();
    const { keyPem, chainPem } = await identities.authority.issue('node', 'n1');
    tls = {
      keyPem,
      chainPem,
      bundlePem: identities.authority.bundlePem,
      serverIds: ['spiffe://cloudless/controller/coordinator'],
      trustDomain: 'cloudless',
    };
  });
  afterAll(() => coordinator.close());

  const renew = async (clientTls: ClientTls | undefined): Promise<string> => {
    const connection = openRenewalConnection(coordinator.url, clientTls);
    const session = {
      address: coordinator.url,
      nodeId: 'n1',
      sessionId: 's1',
      pingIntervalMs: 900,
      leaseMs: 3_000,
    };
    return connection.renew(session, 1_000).finally(() => connection.close());
  };

  it('calls the coordinator with the certificate of the node', async () => {
    expect(await renew(tls)).toBe('renewed');
    expect(coordinator.leaseRenewals).toEqual([{ nodeId: 'n1', sessionId: 's1' }]);
  });

  it.each([
    ['has another SPIFFE ID', { serverIds: ['spiffe://cloudless/controller/other'] }],
    ['is not trusted', { bundlePem: 'other' }],
  ])('fails when the coordinator %s', async (_name, change) => {
    const other = await TestAuthority.create({ nowMs: Date.now() });
    const bundlePem = 'bundlePem' in change ? other.bundlePem : tls.bundlePem;
    await expect(renew({ ...tls, ...change, bundlePem })).rejects.toThrow('is not trusted');
  });

  it('fails without a certificate of the node', async () => {
    const { keyPem: _key, chainPem: _chain, ...anonymous } = tls;
    await expect(renew(anonymous)).rejects.toThrow('HTTP status 401');
  });

  it('fails, and does not throw, when key and certificate do not belong together', async () => {
    const other = await identities.authority.issue('node', 'n1');
    await expect(renew({ ...tls, keyPem: other.keyPem })).rejects.toThrow('do not fit together');
    await expect(renew(undefined)).rejects.toThrow('needs TLS');
  });
});
